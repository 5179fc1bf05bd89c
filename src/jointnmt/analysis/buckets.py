"""Measures of a corpus bucket by bucket, with intervals by bootstrap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jointnmt.evaluation.significance import FEWEST_COMPARED, SEED, two_sided

SAMPLES = 1000
"""Resampled test sets behind an interval."""


@dataclass(frozen=True)
class Buckets:
    """Ranges of a whole number, such as a length: the first below `edges[0]`, the last from `edges[-1]` on."""

    edges: tuple[int, ...]
    lowest: int = 1
    """The least value that occurs."""

    def __post_init__(self) -> None:
        if not self.edges or any(a >= b for a, b in zip((self.lowest, *self.edges), self.edges, strict=False)):
            raise ValueError(f"edges of buckets rise, from above {self.lowest}: {', '.join(map(str, self.edges))}")

    def __len__(self) -> int:
        return len(self.edges) + 1

    def find(self, value: int) -> int:
        """The number of the bucket that a value is in, from 0."""
        return bisect_right(self.edges, value)

    @property
    def names(self) -> tuple[str, ...]:
        """What the buckets are called: `1-9`, `10-19`, ..., `40+`."""
        starts = (self.lowest, *self.edges)
        inner = (f"{a}-{b - 1}" if b - 1 > a else str(a) for a, b in zip(starts, self.edges, strict=False))
        return (*inner, f"{self.edges[-1]}+")


@dataclass(frozen=True)
class BucketValue:
    """One measure of one system in one bucket."""

    bucket: str
    size: int
    """How many of `unit` it is measured on."""
    value: float | None
    """None where the bucket is empty."""
    low: float | None = None
    """The 95% interval's lower end."""
    high: float | None = None
    p_value: float | None = None
    """Probability of a difference from the first system as large as this by chance, by paired bootstrap resampling;
    None for the first system, and where fewer than `FEWEST_COMPARED` sentences are in the bucket."""


@dataclass(frozen=True)
class RatioTerms:
    """What a measure divides in each bucket, `[sentences, buckets]` each."""

    parts: npt.NDArray[np.float64]
    """Hits, say."""
    wholes: npt.NDArray[np.float64]
    """What they are out of; the sum over sentences is a bucket's size."""

    def ratios(self, names: Sequence[str]) -> list[BucketValue]:
        """Of this system alone: see `ratios`."""
        return ratios({"": self}, names)[""]


def ratios(
    systems: Mapping[str, RatioTerms], names: Sequence[str], samples: int = SAMPLES
) -> dict[str, list[BucketValue]]:
    """For each system and bucket, sum of parts / sum of wholes over the sentences.

    Intervals and p-values (`two_sided`, of the difference from the first system) are by bootstrap over sentences, the
    same ones for all systems.

    Args:
        systems: of the same sentences.
        names: of the buckets.
        samples: how many times as many sentences are drawn with replacement.
    """
    count = len(next(iter(systems.values())).parts)
    # How often each sentence is in each text: once in the real one, and then as drawn. To draw a text at a time would
    # take as long as all the rest.
    drawn = np.random.default_rng(SEED).multinomial(count, np.full(count, 1 / count), size=samples)
    weights = np.vstack([np.ones(count), drawn])
    baseline, values = None, {}
    fewest = np.min([np.count_nonzero(shares.wholes, axis=0) for shares in systems.values()], axis=0)
    for system, shares in systems.items():
        parts, wholes = weights @ shares.parts, weights @ shares.wholes
        found = np.divide(parts, wholes, out=np.full_like(parts, np.nan), where=wholes > 0)  # [1 + samples, buckets]
        sizes = wholes[0].astype(int)
        values[system] = [
            _value(
                name,
                int(sizes[i]),
                found[:, i],
                None if baseline is None or fewest[i] < FEWEST_COMPARED else baseline[:, i],
            )
            for i, name in enumerate(names)
        ]
        baseline = found if baseline is None else baseline
    return values


def _value(
    name: str, size: int, found: npt.NDArray[np.float64], baseline: npt.NDArray[np.float64] | None
) -> BucketValue:
    """What the real text says, and what resampled ones do; numbers that are none stand for empty texts."""
    sampled = found[1:][~np.isnan(found[1:])]
    if not size or not len(sampled):
        return BucketValue(name, size, None)
    low, high = np.quantile(sampled, [0.025, 0.975])
    return BucketValue(name, size, float(found[0]), float(low), float(high), _p_value(found, baseline))


def _p_value(found: npt.NDArray[np.float64], baseline: npt.NDArray[np.float64] | None) -> float | None:
    if baseline is None:
        return None
    differences = found - baseline
    sampled = differences[1:][~np.isnan(differences[1:])]
    return None if np.isnan(differences[0]) else two_sided(float(differences[0]), sampled)
