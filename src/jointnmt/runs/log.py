"""The logs of a run: JSON lines and TensorBoard, consistent when a training goes on from a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jointnmt.runs import checkpoint


class RunLog:
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
