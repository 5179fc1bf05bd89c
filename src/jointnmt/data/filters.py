"""Which sentence pairs are kept, and the account of those that are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from jointnmt.config import Config

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.integer[Any]]
DigestArray = npt.NDArray[np.uint64]


class FilterConfig(Config):
    """What to do with bad lines, and which good pairs to leave out. Lengths are in pieces, end mark included."""

    invalid: Literal["error", "drop"] = Field(
        "error",
        description="a line that is not UTF-8, holds a NUL byte, or lacks its column or key: stop, or drop the pair",
    )
    empty: Literal["error", "drop"] = Field("error", description="a pair with an empty or blank side: likewise")
    min_length: int = Field(2, ge=1, le=1_000_000, description="fewest pieces of either side; 2: one, and the end mark")
    max_length: int | None = Field(None, ge=2, le=1_000_000, description="most pieces of either side; null: no limit")
    max_ratio: float | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="most pieces of the longer side for each piece of the shorter; null: no limit",
    )
    duplicates: Literal["keep", "drop"] = Field(
        "keep", description="`drop`: leave out a pair that has been there before, both sides alike"
    )

    @model_validator(mode="after")
    def _lengths_in_order(self) -> Self:
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(f"max_length {self.max_length} is less than min_length {self.min_length}")
        return self

    def for_validation(self) -> FilterConfig:
        """The rules for validation text: bad lines and the longest length only, as the rest would change the test."""
        return FilterConfig(invalid=self.invalid, empty=self.empty, min_length=1, max_length=self.max_length)


@dataclass
class FilterReport:
    """How many pairs were read, and how many were removed for which reason, with the place of the first of each."""

    read: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    """For each reason, the `file:line` of the first pair that it removed."""

    @property
    def kept(self) -> int:
        """Pairs read and not removed."""
        return self.read - sum(self.removed.values())

    def remove(self, reason: str, example: str, count: int = 1) -> None:
        """Write down that `count` pairs were removed, the first of them at `example`."""
        self.removed[reason] = self.removed.get(reason, 0) + count
        self.examples.setdefault(reason, example)

    def render(self) -> str:
        """The report for people: one line, and one more for each reason."""
        gone = self.read - self.kept
        lines = [f"{self.read:,} pairs read, {self.kept:,} kept, {gone:,} removed" + (":" if gone else ".")]
        lines += [f"  {reason}: {count:,} (first: {self.examples[reason]})" for reason, count in self.removed.items()]
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """The report as JSON-compatible values."""
        return asdict(self)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> FilterReport:
        """The report that `plain` wrote."""
        return cls(read=values["read"], removed=dict(values["removed"]), examples=dict(values["examples"]))


class PairFilter:
    """The filters on segmented pairs, applied to one chunk after another; each pair has the first reason that fits."""

    def __init__(self, config: FilterConfig, report: FilterReport) -> None:
        self._config = config
        self._report = report
        self._seen = SeenDigests()

    def keep(
        self, source_lengths: IntArray, target_lengths: IntArray, digests: DigestArray, origin: Callable[[int], str]
    ) -> BoolArray:
        """True for each pair of the chunk that stays; the others are counted in the report.

        Args:
            source_lengths: pieces of each source, end mark included.
            target_lengths: pieces of each target, likewise.
            digests: `digest` of each pair; looked at only when duplicates are dropped.
            origin: the `file:line` of the chunk's i-th pair.
        """
        config = self._config
        shorter, longer = np.minimum(source_lengths, target_lengths), np.maximum(source_lengths, target_lengths)
        kept = np.ones(len(shorter), dtype=np.bool_)
        self._remove(kept, shorter < config.min_length, f"shorter than {config.min_length} pieces", origin)
        if config.max_length is not None:
            self._remove(kept, longer > config.max_length, f"longer than {config.max_length} pieces", origin)
        if config.max_ratio is not None:
            self._remove(kept, longer > config.max_ratio * shorter, f"length ratio above {config.max_ratio:g}", origin)
        if config.duplicates == "drop":
            candidates = np.flatnonzero(kept)
            repeated = np.zeros_like(kept)
            repeated[candidates] = ~self._seen.add(digests[candidates])
            self._remove(kept, repeated, "duplicate", origin)
        return kept

    def _remove(self, kept: BoolArray, bad: BoolArray, reason: str, origin: Callable[[int], str]) -> None:
        gone = np.flatnonzero(kept & bad)
        if len(gone):
            self._report.remove(reason, origin(int(gone[0])), len(gone))
            kept[gone] = False


class SeenDigests:
    """A set of 64-bit digests that takes 8 bytes each (and up to twice that again while it grows).

    Sorted arrays, each at least twice as long as the next, so that all of `n` insertions cost O(n log n).
    """

    def __init__(self) -> None:
        self._runs: list[DigestArray] = []

    def add(self, digests: DigestArray) -> BoolArray:
        """True for each digest that is new: not added before, and the first of its value here."""
        values, first = np.unique(digests, return_index=True)
        known = np.zeros(len(values), dtype=np.bool_)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, values), len(run) - 1)
            known |= run[places] == values
        fresh = np.zeros(len(digests), dtype=np.bool_)
        fresh[first[~known]] = True
        self._insert(values[~known])
        return fresh

    def _insert(self, run: DigestArray) -> None:
        if not len(run):
            return
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        self._runs.append(run)
