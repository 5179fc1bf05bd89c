"""Systems of several training runs, with different seeds: is a difference more than the chance of seeds and sentences?

A score varies with the sentences of the test text and with the seed of the training, and both vary together: a seed
is luckier with some sentences than with others. The model is that of crossed random effects. For run r of system i,

    score = mean of i + sentences + sentences of i + seed r + sentences of seed r

A bootstrap over sentences (Koehn 2004) knows nothing of seeds. Shuffling the translations of each sentence between
systems (Clark et al. 2011) averages over seeds, but does not ask what other seeds would have given. Resampling seeds,
too, takes three of them for all there are, which makes differences look too certain. So variances are estimated: that
of seeds from the runs, that of sentences from the bootstrap, without what both have in common, which would be counted
twice. A system with a single run is taken to vary with the seed as the other one does, and two systems of several runs
alike.

The variance of sentences is as good as known, that of seeds has as many degrees of freedom as there are runs to spare.
So the tails of the normal distribution and of Student's are averaged by the shares of both variances, as Cochran (1964)
averages their quantiles: Satterthwaite's degrees of freedom (1946), estimated from so few runs, are too many where
those happen to lie close together.

Runs that do so can also seem to vary less than their sentences alone would have them. As no seeds make a difference
surer than sentences do, p is at least that of the bootstrap over sentences, and the interval at least as wide. So of 3
runs with 3, 2 or 1 of a system that does not differ, p is below 0.05 in 1% to 4% of comparisons where seeds do not
matter and in 5% where they decide; over sentences alone it is in 5% and in more than half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jointnmt.evaluation.resampling import Numbers, half_width, two_sided

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
    """Half the width of the 95% interval around the value: no less than over sentences alone."""
    p_value: float
    """Two-sided, of a value as far from 0 by chance, if other seeds and other sentences had been drawn: no less than if
    other sentences had."""
    degrees_of_freedom: int
    """Of the variance of seeds."""


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
    least, p_least = half_width(resampled), two_sided(value, resampled)
    if not of_seeds + of_sentences:  # nothing varies: nothing is left to chance
        return SeedEstimate(value, least, p_least, freedom)
    spread, share = math.sqrt(of_seeds + of_sentences), of_seeds / (of_seeds + of_sentences)
    widest = max(least, spread * quantile(1 - CONFIDENCE, freedom, share))
    return SeedEstimate(value, widest, max(p_least, tails(abs(value) / spread, freedom, share)), freedom)


def _squares_over_seeds(system: SampledRuns) -> float:
    """Squared deviations of the runs' scores on the test text from their mean, summed."""
    return float(((system.scores - system.mean) ** 2).sum())


def _squares_over_both(system: SampledRuns) -> float:
    """The same of what seeds and sentences have in common: how the runs' deviations vary with the sentences."""
    deviations = system.resampled - system.resampled.mean(1, keepdims=True)
    return float(deviations.var(0, ddof=1).sum())


def tails(t: float, freedom: float, share: float = 1.0) -> float:
    """The probability of at least `t` >= 0 away from 0: by Student's distribution for a `share`, else by the normal."""
    normal = math.erfc(t / math.sqrt(2))
    return normal if freedom > MOST_FREEDOM else share * _student_tails(t, freedom) + (1 - share) * normal


def quantile(probability: float, freedom: float, share: float = 1.0) -> float:
    """The t whose two tails have this probability, by bisection."""
    low, high = 0.0, 1.0
    while tails(high, freedom, share) > probability:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tails(middle, freedom, share) > probability else (low, middle)
    return high


def _student_tails(t: float, freedom: float) -> float:
    """By the substitution x = sqrt(freedom) tan(a), whose density is proportional to cos(a) ** (freedom - 1)."""
    return _cosine_power(math.atan2(t, math.sqrt(freedom)), freedom) / _cosine_power(0.0, freedom)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def _cosine_power(start: float, freedom: float) -> float:
    """The integral of cos(a) ** (freedom - 1) from `start` to pi / 2, by Gauss and Legendre."""
    half = (math.pi / 2 - start) / 2
    return float(half * (_WEIGHTS * np.cos(start + half * (_NODES + 1)) ** (freedom - 1)).sum())
