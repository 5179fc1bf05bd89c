"""Measures of a corpus bucket by bucket, with intervals by bootstrap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SAMPLES = 1000
"""Resampled test sets behind an interval."""
SEED = 12345


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
class Value:
    """One measure of one system in one bucket."""

    bucket: str
    size: int
    """How many of `unit` it is measured on."""
    value: float | None
    """None where the bucket is empty."""
    low: float | None = None
    """The 95% interval's lower end."""
    high: float | None = None


def ratios(
    parts: npt.NDArray[np.float64], wholes: npt.NDArray[np.float64], names: Sequence[str], samples: int = SAMPLES
) -> list[Value]:
    """For each bucket, sum of parts / sum of wholes over the sentences, with the interval from resampling sentences.

    Args:
        parts: hits, say: `[sentences, buckets]`.
        wholes: what they are out of, likewise; its sum over sentences is a bucket's size.
        names: of the buckets.
        samples: how many times as many sentences are drawn with replacement.
    """
    generator = np.random.default_rng(SEED)
    count = len(parts)
    # How often each sentence is in each resampled text: drawing a text at a time would take as long as all the rest.
    drawn = generator.multinomial(count, np.full(count, 1 / count), size=samples).astype(np.float64)
    sums, totals = drawn @ parts, drawn @ wholes  # [samples, buckets]
    values = []
    for bucket, name in enumerate(names):
        size = int(wholes[:, bucket].sum())
        filled = totals[:, bucket] > 0
        if not size or not filled.any():
            values.append(Value(name, size, None))
            continue
        low, high = np.quantile(sums[filled, bucket] / totals[filled, bucket], [0.025, 0.975])
        values.append(Value(name, size, float(parts[:, bucket].sum() / size), float(low), float(high)))
    return values
