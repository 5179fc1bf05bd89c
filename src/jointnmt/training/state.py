"""The state of a run in its checkpoints, besides the trainer's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from jointnmt.runs.selection import Selection
from jointnmt.training.report import RunningStats


@dataclass(frozen=True)
class RunState:
    """Selection of checkpoints and statistics so far; saved with every checkpoint."""

    selection: Selection = field(default_factory=Selection)
    latest: tuple[int, ...] = ()
    """Latest validated steps of which checkpoints are kept, oldest first."""
    validations: int = 0
    validated_step: int = 0
    window: RunningStats = field(default_factory=RunningStats)
    """Statistics since the last log line."""
    total: RunningStats = field(default_factory=RunningStats)
    """Statistics since the start of training."""

    def plain(self) -> dict[str, Any]:
        """The state as JSON-compatible values."""
        return {
            "selection": self.selection.plain(),
            "latest": list(self.latest),
            "validations": self.validations,
            "validated_step": self.validated_step,
            "window": self.window.plain(),
            "total": self.total.plain(),
        }

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Self:
        """The inverse of `plain`."""
        return cls(
            selection=Selection.from_plain(values["selection"]),
            latest=tuple(values["latest"]),
            validations=values["validations"],
            validated_step=values["validated_step"],
            window=RunningStats.from_plain(values["window"]),
            total=RunningStats.from_plain(values["total"]),
        )
