"""Systems of several training runs, with different seeds: is a difference more than the chance of seeds and sentences?

A score varies with the sentences of the test text and with the seed of the training, and both vary together: a seed
is luckier with some sentences than with others. The model is that of crossed random effects. For run r of system i,

    score = mean of i + sentences + sentences of i + seed r + sentences of seed r

A bootstrap over sentences (Koehn 2004) knows nothing of seeds. Shuffling the translations of each sentence between
systems (Clark et al. 2011) averages over seeds, but does not ask what other seeds would have given. Resampling seeds,
too, takes three of them for all there are, which makes differences look too certain. So variances are estimated: that
of seeds from the runs, that of sentences from the bootstrap, without what both have in common, which would be counted
twice. The test is Student's, with degrees of freedom by Satterthwaite (1946): with few runs, a difference has to be
large. It assumes that both systems vary alike with the seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

CONFIDENCE = 0.95
MOST_FREEDOM = 1000.0
"""Degrees of freedom above which Student's distribution is taken for the normal one."""


@dataclass(frozen=True)
class SampledRuns:
    """The scores of a system's R runs on the test text and on resampled ones."""

    scores: Numbers
    """`[R]`: on the test text."""
    resampled: Numbers
    """`[samples, R]`: on resampled texts, the same for all runs and systems."""

    @property
    def mean(self) -> float:
        """Of the runs, on the test text."""
        return float(self.scores.mean())

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the runs (with R - 1); None of a single run."""
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class SeedEstimate:
    """A mean score over runs, or a difference of two, with what seeds and sentences leave open."""

    value: float
    half_width: float
    """Half the width of the 95% interval around the value."""
    p_value: float
    """Two-sided, of a value as far from 0 by chance, if other seeds and other sentences had been drawn."""
    degrees_of_freedom: float | None
    """None: without limit, where Student's distribution is the normal one."""


def seed_interval(system: SampledRuns) -> SeedEstimate | None:
    """The mean of a system's runs; None of a single run, which tells nothing of seeds."""
    if len(system.scores) < 2:
        return None
    return _estimate(system.mean, system.resampled.mean(1), [system], 1 / len(system.scores))


def seed_difference(system: SampledRuns, first: SampledRuns) -> SeedEstimate | None:
    """The difference of a system from the first one; None if neither has several runs."""
    if len(system.scores) == len(first.scores) == 1:
        return None
    resampled = system.resampled.mean(1) - first.resampled.mean(1)
    runs = 1 / len(system.scores) + 1 / len(first.scores)
    return _estimate(system.mean - first.mean, resampled, [system, first], runs)


def _estimate(value: float, resampled: Numbers, systems: Sequence[SampledRuns], runs: float) -> SeedEstimate:
    """The estimate of a value whose variance is `runs` times that of a single run, and that of sentences."""
    several = [system for system in systems if len(system.scores) > 1]
    freedom = sum(len(system.scores) - 1 for system in several)
    of_seeds = runs * sum(_squares_over_seeds(system) for system in several) / freedom
    of_both = runs * sum(_squares_over_both(system) for system in several) / freedom
    of_sentences = max(0.0, float(resampled.var(ddof=1)) - of_both)
    if not of_seeds + of_sentences:  # nothing varies: nothing is left to chance
        return SeedEstimate(value, 0.0, float(not value), float(freedom))
    share = of_seeds / (of_seeds + of_sentences)
    satterthwaite = freedom / share**2 if share > 1e-3 else math.inf  # that of sentences is as good as known
    spread = math.sqrt(of_seeds + of_sentences)
    half_width = spread * student_quantile(1 - CONFIDENCE, satterthwaite)
    p_value = student_tails(abs(value) / spread, satterthwaite)
    return SeedEstimate(value, half_width, p_value, satterthwaite if math.isfinite(satterthwaite) else None)


def _squares_over_seeds(system: SampledRuns) -> float:
    """Squared deviations of the runs' scores on the test text from their mean, summed."""
    return float(((system.scores - system.mean) ** 2).sum())


def _squares_over_both(system: SampledRuns) -> float:
    """The same of what seeds and sentences have in common: how the runs' deviations vary with the sentences."""
    deviations = system.resampled - system.resampled.mean(1, keepdims=True)
    return float(deviations.var(0, ddof=1).sum())


def student_tails(t: float, freedom: float) -> float:
    """The probability that Student's t with so many degrees of freedom is at least `t` >= 0 away from 0.

    By the substitution x = sqrt(freedom) tan(a), whose density is proportional to cos(a) ** (freedom - 1).
    """
    if freedom > MOST_FREEDOM:
        return math.erfc(t / math.sqrt(2))
    start = math.atan2(t, math.sqrt(freedom))
    return _cosine_power(start, freedom) / _cosine_power(0.0, freedom)


def student_quantile(tails: float, freedom: float) -> float:
    """The t whose two tails have this probability, by bisection."""
    low, high = 0.0, 1.0
    while student_tails(high, freedom) > tails:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tails(middle, freedom) > tails else (low, middle)
    return high


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def _cosine_power(start: float, freedom: float) -> float:
    """The integral of cos(a) ** (freedom - 1) from `start` to pi / 2, by Gauss and Legendre."""
    half = (math.pi / 2 - start) / 2
    return float(half * (_WEIGHTS * np.cos(start + half * (_NODES + 1)) ** (freedom - 1)).sum())
