"""Significance for systems of several training runs with different seeds, over both seeds and sentences.

A score varies with the sentences of the test text, with the seed of the training, and with their interaction: a seed
does better on some sentences than on others. The model is one of crossed random effects. For run r of system i,

    score = mean of i + sentences + sentences of i + seed r + sentences of seed r

A bootstrap over sentences (Koehn 2004) ignores seeds. Shuffling the translations of each sentence between systems
(Clark et al. 2011) averages over seeds, but does not generalise to other seeds. Resampling three seeds treats them as
the whole population, which makes differences look too certain. So variances are estimated: that of seeds from the
runs, that of sentences from the bootstrap, without their interaction, which would be counted twice. Two systems are
assumed to have the same variance over seeds; one with a single run takes that of the other.

The variance of sentences is practically known; that of seeds has a degree of freedom for each run but a system's first.
So the tails of the normal and of Student's distribution are averaged by the shares of both variances, as Cochran (1964)
averages their quantiles: Satterthwaite's degrees of freedom (1946), estimated from so few runs, are too many if the
runs happen to be close together. Two runs against one leave a single degree of freedom, from which the shares cannot be
estimated either: there, the tails are Student's alone.

Such runs can also seem to vary less than their sentences alone imply. As seeds can only add uncertainty, p is at least
that of the bootstrap over sentences, and the interval at least as wide. If 3 runs are compared with 3, 2 or 1 of a
system that does not differ, or 2 with 1, p is below 0.05 in 1% to 4% of comparisons where seeds have no effect, and in
5% where they dominate; over sentences alone, in 5% and in more than half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jointnmt.evaluation.resampling import Numbers, half_width, two_sided

CONFIDENCE = 0.95
MOST_FREEDOM = 1000.0
"""Degrees of freedom above which Student's distribution is replaced by the normal one."""


@dataclass(frozen=True)
class SampledRuns:
    """Scores of a system's R runs on the test text and on resampled ones."""

    scores: Numbers
    """Scores on the test text, `[R]`."""
    resampled: Numbers
    """Scores on resampled texts, the same for all runs and systems, `[samples, R]`."""

    @property
    def mean(self) -> float:
        """The mean of the runs' scores on the test text."""
        return float(self.scores.mean())

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the runs (with R - 1); None for a single run."""
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class SeedEstimate:
    """A difference of two mean scores over runs, with its uncertainty over seeds and sentences."""

    value: float
    half_width: float
    """Half the width of the 95% interval around the value, at least that over sentences alone."""
    p_value: float
    """Two-sided p-value of the value over random seeds and sentences, at least that over sentences alone."""
    degrees_of_freedom: int
    """Degrees of freedom of the variance of seeds."""


def seed_difference(system: SampledRuns, first: SampledRuns) -> SeedEstimate | None:
    """The difference of a system from the first one, over seeds and sentences; None if neither has several runs."""
    if len(system.scores) == len(first.scores) == 1:
        return None
    value, resampled = system.mean - first.mean, system.resampled.mean(1) - first.resampled.mean(1)
    several = [each for each in (system, first) if len(each.scores) > 1]
    freedom = sum(len(each.scores) - 1 for each in several)
    runs = 1 / len(system.scores) + 1 / len(first.scores)  # times the variance of a single run
    of_seeds = runs * sum(_squares_over_seeds(each) for each in several) / freedom
    of_both = runs * sum(_squares_over_both(each) for each in several) / freedom
    of_sentences = max(0.0, float(resampled.var(ddof=1)) - of_both)
    least, p_least = half_width(resampled), two_sided(value, resampled)
    if not of_seeds + of_sentences:  # no variance at all
        return SeedEstimate(value, least, p_least, freedom)
    spread = math.sqrt(of_seeds + of_sentences)
    share = of_seeds / (of_seeds + of_sentences) if freedom > 1 else 1.0
    widest = max(least, spread * quantile(1 - CONFIDENCE, freedom, share))
    return SeedEstimate(value, widest, max(p_least, tails(abs(value) / spread, freedom, share)), freedom)


def _squares_over_seeds(system: SampledRuns) -> float:
    """Squared deviations of the runs' scores on the test text from their mean, summed."""
    return float(((system.scores - system.mean) ** 2).sum())


def _squares_over_both(system: SampledRuns) -> float:
    """Interaction of seeds and sentences: variances of the runs' deviations over resampled texts, summed."""
    deviations = system.resampled - system.resampled.mean(1, keepdims=True)
    return float(deviations.var(0, ddof=1).sum())


def tails(t: float, freedom: float, share: float = 1.0) -> float:
    """The probability of a value at least `t` >= 0 away from 0: a mixture of Student's (`share`) and the normal."""
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
    """Tails of Student's distribution, by x = sqrt(freedom) tan(a), with density proportional to
    cos(a) ** (freedom - 1)."""
    return _cosine_power(math.atan2(t, math.sqrt(freedom)), freedom) / _cosine_power(0.0, freedom)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def _cosine_power(start: float, freedom: float) -> float:
    """The integral of cos(a) ** (freedom - 1) from `start` to pi / 2, by Gauss-Legendre quadrature."""
    half = (math.pi / 2 - start) / 2
    return float(half * (_WEIGHTS * np.cos(start + half * (_NODES + 1)) ** (freedom - 1)).sum())
