"""Seeded orders without a list: each number once, as if drawn at random."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jointnmt.data.order import LISTED, FeistelOrder, shuffled


@given(st.integers(1, 3000), st.lists(st.integers(0, 2**32), min_size=1, max_size=3))
def test_each_number_has_one_position(size: int, seed: list[int]) -> None:
    assert sorted(FeistelOrder(size, seed)(np.arange(size)).tolist()) == list(range(size))


def test_a_position_has_its_number_whatever_else_is_asked_for() -> None:
    order = FeistelOrder(10**12, [1, 2])
    places = np.array([0, 5, 10**12 - 1, 123_456_789_012])
    assert order(places).tolist() == [int(order(places[i : i + 1])[0]) for i in range(4)]
    assert order(places).tolist() == FeistelOrder(10**12, [1, 2])(places).tolist()
    assert order(places).tolist() != FeistelOrder(10**12, [1, 3])(places).tolist()
    assert (order(places) < 10**12).all() and (order(places) >= 0).all()


@pytest.mark.parametrize("make", [FeistelOrder, lambda size, seed: np.random.default_rng(seed).permutation(size).take])
def test_numbers_are_where_a_shuffle_would_have_them(make: Callable[..., Callable[..., np.ndarray]]) -> None:
    """A shuffle also satisfies it, so the test is not too strict."""
    size = 2**14 + 2**13
    positions = np.arange(size)
    for seed in range(20):
        numbers = make(size, [seed])(positions)
        grid = np.histogram2d(positions, numbers, bins=16)[0]
        expected = size / 256
        assert ((grid - expected) ** 2 / expected).sum() < 330, "chi-squared of 225 degrees of freedom: 1 in 200,000"
        assert abs(np.corrcoef(positions, numbers)[0, 1]) < 0.035
        steps = np.diff(numbers)
        assert len(np.unique(steps)) > 0.55 * size, "neighbours are not led to neighbours"
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.035
        parity = (numbers & 1)[:1000].mean()
        assert 0.42 < parity < 0.58


def test_orders_of_two_seeds_have_nothing_in_common() -> None:
    places = np.arange(50_000)
    one, other = (FeistelOrder(50_000, [1, epoch])(places) for epoch in (0, 1))
    assert (one == other).sum() < 10  # for a shuffle: one on average
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02


def test_few_numbers_are_shuffled_as_a_list() -> None:
    expected = np.random.default_rng([3, 4]).permutation(10)
    assert shuffled(10, [3, 4])(np.arange(10)).tolist() == expected.tolist()
    assert isinstance(shuffled(LISTED + 1, [3, 4]), FeistelOrder)
