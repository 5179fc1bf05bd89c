"""Batches: complete, within their limits, in an order given by seed and epoch, and divided evenly."""

import tracemalloc
import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jointnmt.data import batches
from jointnmt.data.batch import BatchPart
from jointnmt.data.batches import EpochPlan, Share, UpdateBatches, load, load_share, plan_epoch, shard, shard_each
from jointnmt.data.corpus import read_lines
from jointnmt.data.length_buckets import BatchConfig, plan_batches
from jointnmt.errors import ConfigurationError

Arrays = tuple[np.ndarray, np.ndarray]

SMALL_ORDER = (
    "22,23 38,39 30 18,17 32,33 24,25 6,5 4,3 / 14,13 2,1 36,37 0 19,20,21 / 10,9 12,11 28,29 31 16,15 8 "
    "34,35 26,27 / 7"
)
"""Updates, their batches, and the pairs of each batch."""


def corpus(size: int, mean: float = 14.0) -> Arrays:
    """Random lengths, correlated between sides like those of sentences."""
    generator = np.random.default_rng(1)
    source = 2 + generator.poisson(mean * generator.gamma(8, 1 / 8, size))
    target = 2 + generator.poisson(source)
    return source.astype(np.int32), target.astype(np.int32)


def plain(updates: list[UpdateBatches]) -> list[list[list[int]]]:
    return [[batch.tolist() for batch in update] for update in updates]


def padded_share(updates: list[UpdateBatches], source: np.ndarray, target: np.ndarray) -> float:
    """Share of the cells of all batches that are padding."""
    cells = sum(len(b) * int(source[b].max()) * int(target[b].max()) for update in updates for b in update)
    return 1 - int((source.astype(np.int64) * target).sum()) / cells


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=120),
    st.integers(30, 200),
    st.none() | st.integers(900, 3000),
    st.integers(30, 400),
    st.integers(0, 3),
)
def test_every_pair_once_and_every_limit_kept(
    lengths: list[tuple[int, int]], max_tokens: int, max_cells: int | None, update_tokens: int, epoch: int
) -> None:
    source, target = np.array(lengths, dtype=np.int32).reshape(-1, 2).T
    config = BatchConfig(max_tokens=max_tokens, max_cells=max_cells, update_tokens=update_tokens)
    updates = plan_epoch(source, target, config, seed=1, epoch=epoch)
    assert sorted(i for update in plain(updates) for batch in update for i in batch) == list(range(len(lengths)))
    for update in updates:
        assert update
        assert sum(int(target[batch].sum()) for batch in update) <= update_tokens
        for batch in update:
            longest_source, longest_target = int(source[batch].max()), int(target[batch].max())
            assert max(longest_source, longest_target) * len(batch) <= max_tokens
            assert longest_source * longest_target * len(batch) <= (max_cells or np.inf)


def test_the_order_is_a_pure_function_of_seed_and_epoch() -> None:
    lengths, config = corpus(2000), BatchConfig(max_tokens=500, update_tokens=1000)
    before = lengths[0].copy()
    first = plain(plan_epoch(*lengths, config, seed=1, epoch=0))
    np.random.seed(5)  # the global state does not matter
    assert plain(plan_epoch(*lengths, config, seed=1, epoch=0)) == first
    assert plain(plan_epoch(*lengths, config, seed=1, epoch=1)) != first
    assert plain(plan_epoch(*lengths, config, seed=2, epoch=0)) != first
    assert (lengths[0] == before).all()


def test_sentences_meet_others_in_another_epoch() -> None:
    lengths, config = corpus(5000), BatchConfig(max_tokens=500, update_tokens=1000)
    batches_of = [
        {frozenset(batch) for update in plain(plan_epoch(*lengths, config, 1, epoch)) for batch in update}
        for epoch in (0, 1)
    ]
    assert len(batches_of[0] & batches_of[1]) < 0.2 * len(batches_of[0])


def test_updates_use_their_budget_and_mix_short_and_long() -> None:
    source, target = corpus(20_000)
    updates = plan_epoch(source, target, BatchConfig(max_tokens=500, update_tokens=10_000), seed=1, epoch=0)
    assert target.sum() / len(updates) > 0.95 * 10_000
    means = [np.mean([target[batch].mean() for batch in update]) for update in updates[:-1]]
    by_batch = [target[batch].mean() for update in updates for batch in update]
    # Independent draws of about 20 batches an update would give 1 / sqrt(20) = 0.22.
    assert np.std(means) < 0.35 * np.std(by_batch)


def test_little_is_padding() -> None:
    lengths = corpus(100_000)
    for max_tokens, most in [(1000, 0.02), (4096, 0.035)]:
        config = BatchConfig(max_tokens=max_tokens, update_tokens=4096)
        assert padded_share(plan_epoch(*lengths, config, seed=1, epoch=0), *lengths) < most


def test_dearer_batches_are_fewer_with_more_padding() -> None:
    lengths = corpus(20_000)
    plans = [
        plan_epoch(*lengths, BatchConfig(max_tokens=1000, overhead_cells=overhead), seed=1, epoch=0)
        for overhead in (0, 500, 10**6)
    ]
    counts = [sum(map(len, plan)) for plan in plans]
    padded = [padded_share(plan, *lengths) for plan in plans]
    assert padded[0] == 0 < padded[1] < 0.7 * padded[2]
    assert counts[0] > counts[1] > counts[2] and counts[1] < 1.5 * counts[2]


def test_little_of_a_real_corpus_is_padding(corpora: Path) -> None:
    sides = [read_lines(corpora / "multi30k" / f"train.{language}.gz") for language in ("de", "en")]
    source, target = (np.array([len(line.split()) + 1 for line in side], dtype=np.int32) for side in sides)
    config = BatchConfig(max_tokens=4096, max_cells=20_000, update_tokens=4096)
    assert padded_share(plan_epoch(source, target, config, seed=1, epoch=0), source, target) < 0.035


def test_large_corpora_are_planned_in_pools(monkeypatch: Any) -> None:
    monkeypatch.setattr(batches, "POOL_PAIRS", 64)
    lengths, config = corpus(1000), BatchConfig(max_tokens=200, update_tokens=400)
    plans = [EpochPlan(lengths, config, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    orders = [[i for update in plain(list(plan)) for batch in update for i in batch] for plan in plans]
    assert all(sorted(order) == list(range(1000)) for order in orders)
    assert len(set(map(tuple, orders))) == 3
    assert [len(plan) for plan in plans] == [len(list(plan)) for plan in plans]
    firsts = np.array(orders[0][:64])
    assert 300 < firsts.mean() < 700 and firsts.max() - firsts.min() > 800, "a pool is of all parts of the corpus"


@pytest.mark.parametrize("pool", [64, 10_000])
def test_a_plan_goes_on_from_any_update(pool: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(batches, "POOL_PAIRS", pool)
    lengths, config = corpus(500), BatchConfig(max_tokens=200, update_tokens=400)
    whole = plain(list(EpochPlan(lengths, config, 1, 3)))
    assert len(whole) > 20
    for number in range(len(whole) + 1):
        assert plain(list(EpochPlan(lengths, config, 1, 3).since(number))) == whole[number:]


def test_the_order_of_small_corpora_stays_what_it_was() -> None:
    """Older runs can be resumed: the order was computed by the version that shuffled a list of all pairs."""
    source = np.arange(2, 42, dtype=np.int32)
    updates = plan_epoch(source, source[::-1].copy(), BatchConfig(max_tokens=200, update_tokens=300), seed=3, epoch=2)
    shown = (" ".join(",".join(map(str, batch)) for batch in update) for update in plain(updates))
    assert " / ".join(shown) == SMALL_ORDER


def test_planning_takes_the_memory_of_a_pool(monkeypatch: Any) -> None:
    monkeypatch.setattr(batches, "POOL_PAIRS", 2**12)
    config = BatchConfig(max_tokens=20_000, max_cells=2_000_000, update_tokens=20_000, overhead_cells=10**6)
    peaks = []
    for size in (50_000, 400_000):
        lengths = corpus(size)
        tracemalloc.start()
        plan = EpochPlan(lengths, config, seed=1, epoch=0)
        assert sum(1 for _ in plan) == len(plan)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_tokens": 50}, r"batches.max_tokens=50 .* 2 of 4 .* f:1 \(60 source and 10 .* to 70 or more"),
        ({"max_cells": 650}, r"batches.max_cells=650 .* 1 of 4 .* f:3 \(10 source and 70 .* to 700 or more"),
        ({"update_tokens": 69}, r"batches.update_tokens=69 .* 1 of 4 .* f:3 .* to 70 or more"),
    ],
)
def test_a_pair_beyond_a_limit_is_an_error_that_says_what_to_set(limits: dict[str, int], message: str) -> None:
    source, target = np.array([[5, 5], [60, 10], [5, 5], [10, 70]], dtype=np.int32).T
    with pytest.raises(ConfigurationError, match=message):
        plan_epoch(source, target, BatchConfig(**limits), seed=1, epoch=0, origin="f:{}".format)


def test_a_large_pair_after_a_small_one_goes_to_the_other_process() -> None:
    """Its middle is in that process's half, though it begins in the first one's."""
    lengths = np.array([1, 5], dtype=np.int32), np.array([2, 2], dtype=np.int32)
    parts = [shard([np.array([0]), np.array([1])], lengths, rank, 2) for rank in range(2)]
    assert [[share.pairs.tolist() for share in part] for part in parts] == [[[0]], [[1]]]


@pytest.mark.parametrize("world", [1, 2, 3, 8, 100])
def test_processes_share_an_update_evenly(world: int) -> None:
    lengths = corpus(3000)
    config = BatchConfig(max_tokens=500, update_tokens=3000)
    for update in plan_epoch(*lengths, config, seed=1, epoch=0):
        shares = [shard(update, lengths, rank, world) for rank in range(world)]
        for share in chain(*shares):
            end = share.begin + len(share.pairs)
            assert share.pairs.tolist() == share.batch[share.begin : end].tolist()
        parts = [[share.pairs for share in part] for part in shares]
        everything = [i for part in plain(parts) for batch in part for i in batch]
        assert everything == [i for batch in update for i in batch.tolist()]
        assert sum(len(part) for part in parts) <= len(update) + world - 1
        sizes = [int(lengths[0][batch].max()) * int(lengths[1][batch].max()) for batch in update]
        total = sum(size * len(batch) for size, batch in zip(sizes, update, strict=True))
        for part in parts:
            cells = sum(len(b) * int(lengths[0][b].max()) * int(lengths[1][b].max()) for b in part)
            assert cells <= total / world + max(sizes)


def test_one_process_has_the_batches_as_planned() -> None:
    lengths = corpus(500)
    for update in plan_epoch(*lengths, BatchConfig(max_tokens=300, update_tokens=2000), seed=1, epoch=0):
        shares = shard(update, lengths, 0, 1)
        assert plain([[share.pairs for share in shares]]) == plain([update])


def test_batches_of_an_update_begin_with_different_pairs() -> None:
    """Dropout identifies batches by their first pair, and a pair of a weighted text occurs more than once."""
    lengths = corpus(400)
    every = np.repeat(np.arange(400), 3)

    class Repeated:
        def __len__(self) -> int:
            return len(every)

        def __call__(self, positions: np.ndarray) -> np.ndarray:
            return every[positions]

    config = BatchConfig(max_tokens=100, update_tokens=8000)
    updates = list(EpochPlan(lengths, config, seed=1, epoch=0, pairs=Repeated()))
    assert max(map(len, updates)) > 10
    for update in updates:
        begun: set[int] = set()
        for batch in update:
            assert int(batch[0]) not in begun or set(batch.tolist()) <= begun, "another one could have been the first"
            begun.add(int(batch[0]))
    assert np.array_equal(np.sort(np.concatenate([*chain.from_iterable(updates)])), every)


def test_processes_beyond_the_pairs_get_nothing() -> None:
    lengths = np.array([3, 4]), np.array([3, 4])
    parts = [shard([np.array([0, 1])], lengths, rank, 5) for rank in range(5)]
    assert sorted(map(len, parts)) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("world", [1, 2, 7])
def test_each_batch_may_be_shared_by_all(world: int) -> None:
    """All processes then compute equally many; one without a part of a batch computes a pair that does not count."""
    lengths = corpus(300)
    for update in plan_epoch(*lengths, BatchConfig(max_tokens=60, update_tokens=500), seed=1, epoch=0):
        shares = [shard_each(update, lengths, rank, world) for rank in range(world)]
        for batch, parts in zip(update, zip(*shares, strict=True), strict=True):
            assert [pair for part in parts if part.counts for pair in part.pairs.tolist()] == batch.tolist()
            assert all(len(part.pairs) == 1 and part.pairs[0] in batch for part in parts if not part.counts)


def test_a_pair_that_does_not_count_has_nothing_to_predict() -> None:
    class Store:
        def pairs(self, indices: list[int]) -> list[tuple[list[int], list[int]]]:
            return [([10], [20]) for _ in indices]

    pairs = np.array([4])
    batch = load_share(Store(), Share(pairs, 0, np.array([4, 2]), counts=False))  # type: ignore[arg-type]
    assert batch.num_target_tokens == batch.num_real_cells == 0
    assert torch.equal(batch.target_input, load(Store(), pairs).target_input)  # type: ignore[arg-type]


def test_loading_makes_a_batch_of_these_pairs() -> None:
    class Store:
        def pairs(self, indices: list[int]) -> list[tuple[list[int], list[int]]]:
            return [([10 + i], [20 + i, 30 + i]) for i in indices]

    batch = load(Store(), np.array([4, 2], dtype=np.int32))  # type: ignore[arg-type]
    assert batch.source.tolist() == [[14, 2], [12, 2]]
    assert batch.target_output.tolist() == [[24, 34, 2], [22, 32, 2]]
    assert batch.indices == (4, 2)


def test_a_part_is_padded_as_its_batch() -> None:
    class Store:
        lengths = np.array([2, 3, 5]), np.array([4, 2, 2])

        def pairs(self, indices: list[int]) -> list[tuple[list[int], list[int]]]:
            return [([10] * (self.lengths[0][i] - 1), [20] * (self.lengths[1][i] - 1)) for i in indices]

    batch = np.array([0, 1, 2])
    part = load_share(Store(), Share(batch[1:2], 1, batch))  # type: ignore[arg-type]
    assert part.source.tolist() == [[10, 10, 2, 0, 0]]
    assert part.target_output.tolist() == [[20, 2, 0, 0]]
    assert (part.indices, part.part) == ((1,), BatchPart(begin=1, whole=3, first_pair=0))
    whole = load_share(Store(), Share(batch, 0, batch))  # type: ignore[arg-type]
    assert whole.part == BatchPart(begin=0, whole=3, first_pair=0)


def test_lengths_that_cannot_be_written_to_are_planned_without_a_word() -> None:
    """Lengths of a store are mapped read-only, and PyTorch warns of such arrays."""
    lengths = np.array([3, 5, 2, 9], dtype=np.int32)
    lengths.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sorted(chain(*plan_batches(lengths, lengths, BatchConfig()))) == [0, 1, 2, 3]
        assert plan_epoch(lengths, lengths, BatchConfig(), seed=1, epoch=0)
