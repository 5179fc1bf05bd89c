"""The logs of a run: JSON lines and TensorBoard, consistent when a training goes on from a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from jointnmt.training import checkpoint
from jointnmt.training.report import StepReport, Sums


@dataclass(frozen=True)
class Window:
    """What several updates summed up."""

    sums: Sums = field(default_factory=Sums)
    updates: int = 0
    skipped: int = 0
    seconds: float = 0.0

    def add(self, report: StepReport) -> Window:
        """The window with one more update. A skipped update's loss, which is not a number, is left out."""
        if report.skipped:
            return Window(self.sums, self.updates, self.skipped + 1, self.seconds + report.seconds)
        sums = Sums(*(a + b for a, b in zip(astuple(self.sums), astuple(report.sums), strict=True)))
        return Window(sums, self.updates + 1, self.skipped, self.seconds + report.seconds)

    @property
    def nll(self) -> float:
        """Negative log-likelihood of a target token, in nats."""
        return self.sums.nll / self.sums.target_tokens if self.sums.target_tokens else math.nan

    def record(self) -> dict[str, Any]:
        """Means over true target tokens, and rates in true source and target tokens and true cells."""
        sums, tokens, seconds = self.sums, max(self.sums.target_tokens, 1), max(self.seconds, 1e-9)
        return {
            "loss": sums.loss / max(sums.loss_units, 1),
            "nll": sums.nll / tokens,
            "perplexity": math.exp(min(sums.nll / tokens, 700.0)),
            "updates": self.updates,
            "sentences": int(sums.sentences),
            "target_tokens": int(sums.target_tokens),
            "tokens_per_second": (sums.source_tokens + sums.target_tokens) / seconds,
            "cells_per_second": sums.cells / seconds,
            "padding": 1 - sums.cells / max(sums.padded_cells, 1),
            "splits": int(sums.splits),
            "skipped": self.skipped,
            "seconds": self.seconds,
        }

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Self:
        """The inverse of `plain`."""
        rest = {each.name: values[each.name] for each in fields(cls) if each.name != "sums"}
        return cls(sums=Sums(**values["sums"]), **rest)


class Logs:
    """Writes each record to `log.jsonl` and its numbers to TensorBoard.

    Args:
        log: the JSON-lines file; records of later steps than `step`, and a half-written line, are removed.
        tensorboard: the directory of the event files; None: none.
        step: the update from which training goes on.
    """

    def __init__(self, log: Path, tensorboard: Path | None, step: int) -> None:
        self._writer: Any = None
        if log.exists():
            kept = [line for line, record in whole_records(log) if record["step"] <= step]
            checkpoint.write_text(log, "".join(kept))
        self._file = log.open("a", encoding="utf-8")
        if tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            self._writer = SummaryWriter(str(tensorboard), purge_step=step + 1 if step else None)

    def write(self, event: str, step: int, **values: Any) -> None:
        """Write a record."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        record = {"event": event, "step": step, **finite}
        self._file.write(json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n")
        self._file.flush()
        if self._writer is not None:
            for key, value in finite.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._writer.add_scalar(f"{event}/{key}", value, step)

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()


def whole_records(log: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of a log with their records; a line that is not finished, by a killed process say, is left out."""
    with log.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if line.endswith("\n"):
                yield line, record
