"""Comparisons over seeds and sentences, on planted scores: crossed random effects of known sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from jointnmt.evaluation.resampling import half_width, two_sided
from jointnmt.evaluation.seeds import SampledRuns, SeedEstimate, quantile, seed_difference, tails

pytestmark = pytest.mark.slow

SENTENCES, SAMPLES = 60, 100
TEXTS = (
    np.random.default_rng(0).multinomial(SENTENCES, np.full(SENTENCES, 1 / SENTENCES), size=(20, SAMPLES)) / SENTENCES
)


def planted(
    generator: np.random.Generator,
    runs: Sequence[int] = (3, 3),
    seed: float = 0.0,
    sentence_of_system: float = 0.0,
    difference: float = 0.0,
) -> list[SampledRuns]:
    """Systems whose score is the mean of sentences, which vary by sentence, system, seed, and sentence of a seed."""
    texts = generator.choice(TEXTS)
    common = 3 * generator.normal(size=(SENTENCES, 1))
    systems = []
    for number, count in enumerate(runs):
        scores = common + difference * number + generator.normal(size=(SENTENCES, count))
        scores = scores + seed * generator.normal(size=count)
        scores = scores + sentence_of_system * generator.normal(size=(SENTENCES, 1))
        systems.append(SampledRuns(scores.mean(0), texts @ scores))
    return systems


def p_values(count: int, **effects: object) -> np.ndarray:
    generator = np.random.default_rng(5)
    return np.array([compared(planted(generator, **effects)).p_value for _ in range(count)])  # type: ignore[arg-type]


def compared(systems: Sequence[SampledRuns]) -> SeedEstimate:
    found = seed_difference(systems[1], systems[0])
    assert found is not None
    return found


SMALL, LIKE_SENTENCES, LARGE = 0.05, 0.13, 0.5
"""Standard deviations of seeds: that of a run's score by what seeds and sentences have in common is 0.13."""


@pytest.mark.parametrize("runs", [(3, 3), (3, 2), (3, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("seed", [0.0, SMALL, LIKE_SENTENCES, LARGE])
@pytest.mark.parametrize("sentence_of_system", [0.0, 0.5])
def test_of_systems_that_do_not_differ_p_is_rarely_small(
    runs: tuple[int, int], seed: float, sentence_of_system: float
) -> None:
    count = 200
    found = p_values(count, runs=runs, seed=seed, sentence_of_system=sentence_of_system)
    for level in (0.05, 0.2, 0.5):
        chance = 2.6 * (level * (1 - level) / count) ** 0.5
        assert level / 6 - 0.01 < np.mean(found < level) < level + chance


@pytest.mark.parametrize(("runs", "seed"), [((3, 3), LARGE), ((3, 1), 2 * LARGE), ((40, 40), LIKE_SENTENCES)], ids=str)
def test_where_seeds_decide_or_are_many_p_is_uniform(runs: tuple[int, int], seed: float) -> None:
    count = 400
    found = p_values(count, runs=runs, seed=seed)
    for level in (0.05, 0.2, 0.5, 0.8):
        assert np.mean(found < level) == pytest.approx(level, abs=3 * (level * (1 - level) / count) ** 0.5 + 0.01)


@pytest.mark.parametrize("seed", [0.0, LIKE_SENTENCES, LARGE])
@pytest.mark.parametrize("runs", [(3, 3), (3, 2), (3, 1), (2, 1)], ids=str)
def test_no_seeds_make_a_difference_surer_than_sentences_do(runs: tuple[int, int], seed: float) -> None:
    generator = np.random.default_rng(3)
    for _ in range(60):
        first, system = planted(generator, runs=runs, seed=seed, difference=0.3)
        found, resampled = compared([first, system]), system.resampled.mean(1) - first.resampled.mean(1)
        assert found.p_value >= two_sided(found.value, resampled)
        assert found.half_width >= half_width(resampled)


def test_a_difference_is_found_as_far_as_seeds_allow() -> None:
    clear = p_values(100, seed=0.1, difference=1.0)
    assert np.mean(clear < 0.05) > 0.9
    hidden = p_values(100, seed=1.0, difference=1.0)  # one standard deviation of a seed: three runs cannot tell
    assert np.mean(hidden < 0.05) < 0.5
    more = p_values(100, seed=1.0, difference=1.0, runs=(40, 40))
    assert np.mean(more < 0.05) > 0.95


def test_a_bootstrap_over_sentences_alone_takes_seeds_for_systems() -> None:
    """The reason for the test over seeds: with the same planted null, the other p is small far too often."""
    generator = np.random.default_rng(1)
    small = 0
    for _ in range(200):
        system, first = planted(generator, seed=0.3)
        resampled = system.resampled.mean(1) - first.resampled.mean(1)
        small += two_sided(system.mean - first.mean, resampled) < 0.05
    assert small / 200 > 0.3


def test_a_single_run_borrows_the_variance_of_the_other_system() -> None:
    alone = planted(np.random.default_rng(0), runs=(1, 1))
    assert seed_difference(alone[1], alone[0]) is None
    several, single = planted(np.random.default_rng(0), runs=(3, 1), seed=LARGE)
    assert compared([several, single]).degrees_of_freedom == 2


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    generator = np.random.default_rng(2)
    held = [
        abs(found.value - 0.7) <= found.half_width
        for found in (compared(planted(generator, seed=0.2, difference=0.7)) for _ in range(300))
    ]
    assert np.mean(held) > 0.93


def test_two_runs_and_one_that_happen_to_agree_are_no_evidence() -> None:
    """One degree of freedom: the variance of seeds may be tiny by chance."""
    generator = np.random.default_rng(6)
    found = [compared(planted(generator, runs=(2, 1), seed=LARGE)).p_value for _ in range(2000)]
    assert np.mean(np.array(found) < 0.05) < 0.045  # 0.06, if the shares of seeds and sentences were estimated


def test_ties_of_resampled_texts_survive_rounding() -> None:
    difference = 0.1 + 0.2  # 0.30000000000000004
    assert two_sided(difference, np.array([0.0, 0.6, difference])) == 3 / 4


def test_equal_runs_leave_nothing_to_chance() -> None:
    same = SampledRuns(np.full(3, 2.0), np.full((10, 3), 2.0))
    assert compared([same, same]).p_value == 1
    other = SampledRuns(np.full(3, 3.0), np.full((10, 3), 3.0))
    found = compared([same, other])
    assert (found.value, found.half_width, found.p_value) == (1.0, 0.0, 1 / 11)  # of ten texts and the original


@pytest.mark.parametrize(
    ("freedom", "quantile_of_table"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (30, 2.0423), (1e9, 1.95996)]
)
def test_student_is_that_of_the_tables(freedom: float, quantile_of_table: float) -> None:
    """Critical values of Student's t for 5%, two-sided."""
    assert quantile(0.05, freedom) == pytest.approx(quantile_of_table, abs=1e-4)
    assert tails(quantile_of_table, freedom) == pytest.approx(0.05, abs=1e-5)
    assert tails(0.0, freedom) == pytest.approx(1)


def test_tails_are_averaged_by_share() -> None:
    whole, none = tails(3.0, 2), tails(3.0, 1e9)
    assert tails(3.0, 2, share=0.25) == pytest.approx(whole / 4 + 3 * none / 4)
    assert tails(quantile(0.05, 2, share=0.25), 2, share=0.25) == pytest.approx(0.05)
