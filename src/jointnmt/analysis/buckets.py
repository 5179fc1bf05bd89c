"""Measures of a corpus by bucket, with bootstrap intervals."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from jointnmt.evaluation.resampling import two_sided
from jointnmt.evaluation.significance import FEWEST_COMPARED, resampling_seed

SAMPLES = 1000
"""Number of resampled test sets for an interval."""


@dataclass(frozen=True)
class Buckets:
    """Ranges of an integer such as a length: the first is below `edges[0]`, the last from `edges[-1]` on."""

    edges: tuple[int, ...]
    lowest: int = 1
    """The smallest value that occurs."""

    def __post_init__(self) -> None:
        if not self.edges or any(a >= b for a, b in zip((self.lowest, *self.edges), self.edges, strict=False)):
            raise ValueError(f"bucket edges must increase, from above {self.lowest}: {', '.join(map(str, self.edges))}")

    def __len__(self) -> int:
        return len(self.edges) + 1

    def find(self, value: int) -> int:
        """The index of a value's bucket, from 0."""
        return bisect_right(self.edges, value)

    def rows(self, values: Sequence[int]) -> list[list[int]]:
        """For each bucket, the indices of its values; those below the lowest, such as of empty lines, are in none."""
        found: list[list[int]] = [[] for _ in range(len(self))]
        for row, value in enumerate(values):
            if value >= self.lowest:
                found[self.find(value)].append(row)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the buckets: `1-9`, `10-19`, ..., `40+`."""
        starts = (self.lowest, *self.edges)
        inner = (f"{a}-{b - 1}" if b - 1 > a else str(a) for a, b in zip(starts, self.edges, strict=False))
        return (*inner, f"{self.edges[-1]}+")


@dataclass(frozen=True)
class BucketValue:
    """One measure of one system in one bucket."""

    bucket: str
    size: int
    """Number of units in the bucket."""
    value: float | None
    """The measured value; None for an empty bucket."""
    low: float | None = None
    """Lower end of the 95% interval; None with fewer than two sentences, which cannot be resampled."""
    high: float | None = None
    p_value: float | None = None
    """p-value of the difference from the first system, by paired bootstrap resampling; None for the first system, and
    in buckets of fewer than `FEWEST_COMPARED` sentences."""

    def rounded(self) -> tuple[str, str]:
        """The value and its interval, such as `23.46` and `22.10 to 24.75`; empty where there is none."""
        if self.value is None:
            return "", ""
        places = 2 if self.value > 2 else 3
        interval = "" if self.low is None else f"{self.low:.{places}f} to {self.high:.{places}f}"
        return f"{self.value:.{places}f}", interval


@dataclass(frozen=True)
class RatioTerms:
    """Terms of a ratio by sentence and bucket, `[sentences, buckets]`."""

    numerators: npt.NDArray[np.float64]
    """Numerators, such as hits."""
    denominators: npt.NDArray[np.float64]
    """Denominators, whose sum over sentences is the size of a bucket."""

    def ratios(self, names: Sequence[str]) -> list[BucketValue]:
        """The ratios of a single system; see `ratios`."""
        return ratios({"": self}, names)[""]


def ratios(systems: Mapping[str, RatioTerms], names: Sequence[str]) -> dict[str, list[BucketValue]]:
    """For each system and bucket, sum of numerators / sum of denominators over sentences.

    Intervals, where at least two sentences are in a bucket, and p-values (`two_sided`, of the difference from the
    first system) come from a bootstrap over sentences, with the same samples for all systems.

    Args:
        systems: terms of each system for the same sentences.
        names: names of the buckets.

    Raises:
        ConfigurationError: if SACREBLEU_SEED is not a seed.
    """
    count = len(next(iter(systems.values())).numerators)
    # Counts of each sentence in each text: ones for the original, then the samples, all drawn at once for speed.
    drawn = np.random.default_rng(resampling_seed()).multinomial(count, np.full(count, 1 / count), size=SAMPLES)
    weights = np.vstack([np.ones(count), drawn])
    baseline, values = None, {}
    filled = {system: np.count_nonzero(terms.denominators, axis=0) for system, terms in systems.items()}
    fewest = np.min([*filled.values()], axis=0)
    for system, terms in systems.items():
        above, below = weights @ terms.numerators, weights @ terms.denominators
        found = np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)  # [1 + samples, buckets]
        sizes = below[0].astype(int)
        values[system] = [
            _value(
                BucketValue(name, int(sizes[i]), None),
                int(filled[system][i]),
                found[:, i],
                None if baseline is None or fewest[i] < FEWEST_COMPARED else baseline[:, i],
            )
            for i, name in enumerate(names)
        ]
        baseline = found if baseline is None else baseline
    return values


def _value(
    empty: BucketValue, sentences: int, found: npt.NDArray[np.float64], baseline: npt.NDArray[np.float64] | None
) -> BucketValue:
    """A bucket with the value of the original text and its interval; a sample without any sentence of it is NaN."""
    if not empty.size:
        return empty
    value = replace(empty, value=float(found[0]), p_value=_p_value(found, baseline))
    if sentences < 2:
        return value
    low, high = np.quantile(found[1:][~np.isnan(found[1:])], [0.025, 0.975])
    return replace(value, low=float(low), high=float(high))


def _p_value(found: npt.NDArray[np.float64], baseline: npt.NDArray[np.float64] | None) -> float | None:
    if baseline is None:
        return None
    differences = found - baseline
    sampled = differences[1:][~np.isnan(differences[1:])]
    return None if np.isnan(differences[0]) else two_sided(float(differences[0]), sampled)
