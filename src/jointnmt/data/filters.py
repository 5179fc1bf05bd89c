"""Filters of sentence pairs, and the report on the pairs that they remove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from jointnmt.config import Config


class FilterConfig(Config):
    """Treatment of bad lines, and filters of good pairs. Lengths are in pieces, end mark included."""

    invalid: Literal["error", "drop"] = Field(
        "error",
        description="a line that is not UTF-8, holds a NUL byte, or lacks its column or key: stop, or drop the pair",
    )
    empty: Literal["error", "drop"] = Field(
        "error", description="a blank line, or a pair with a blank side: stop, or drop it"
    )
    min_length: int = Field(2, ge=1, le=1_000_000, description="fewest pieces of either side; 2: one and the end mark")
    max_length: int | None = Field(None, ge=2, le=1_000_000, description="most pieces of either side; null: no limit")
    max_ratio: float | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="most pieces of the longer side for each piece of the shorter; null: no limit",
    )
    duplicates: Literal["keep", "drop"] = Field(
        "keep", description="`drop`: leave out a pair that occurred before with the same two sides"
    )

    @model_validator(mode="after")
    def _lengths_in_order(self) -> Self:
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(f"max_length {self.max_length} is less than min_length {self.min_length}")
        return self

    def for_validation(self) -> FilterConfig:
        """The filters for validation text: bad lines and `max_length` only, as the others would change the test."""
        return FilterConfig(invalid=self.invalid, empty=self.empty, min_length=1, max_length=self.max_length)


@dataclass
class FilterReport:
    """Numbers of pairs read, and removed by each reason, with the place of the first removed pair."""

    read: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    """For each reason, the `file:line` of the first pair that it removed."""

    @property
    def kept(self) -> int:
        """Number of pairs read and not removed."""
        return self.read - sum(self.removed.values())

    def remove(self, reason: str, example: str, count: int = 1) -> None:
        """Record that `count` pairs were removed, the first of them at `example`."""
        self.removed[reason] = self.removed.get(reason, 0) + count
        self.examples.setdefault(reason, example)

    def add(self, other: FilterReport) -> None:
        """Add the counts of a report on later pairs."""
        self.read += other.read
        for cause, count in other.removed.items():
            self.remove(cause, other.examples[cause], count)

    def render(self) -> str:
        """The report as text: one line, and one more for each reason."""
        gone = self.read - self.kept
        lines = [f"{self.read:,} pairs read, {self.kept:,} kept, {gone:,} removed" + (":" if gone else ".")]
        lines += [f"  {reason}: {count:,} (first: {self.examples[reason]})" for reason, count in self.removed.items()]
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """The report as JSON-compatible values."""
        return asdict(self)

    def renamed(self, files: Mapping[str, Path]) -> FilterReport:
        """The report with files renamed, by a mapping from old to new paths."""
        parts = {cause: example.rpartition(":") for cause, example in self.examples.items()}
        named = {cause: f"{files.get(path, path)}:{line}" for cause, (path, _, line) in parts.items()}
        return FilterReport(self.read, dict(self.removed), named)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> FilterReport:
        """The report that `plain` wrote."""
        return cls(read=values["read"], removed=dict(values["removed"]), examples=dict(values["examples"]))
