"""The log of a run, as JSON lines and for TensorBoard, consistent when a training resumes from a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jointnmt.extras import extra
from jointnmt.runs import checkpoint


class RunLog:
    """Writes records to `log.jsonl`, and their numbers to TensorBoard.

    Args:
        log: the JSON-lines file; records after `step`, and an incomplete line, are removed.
        tensorboard: the directory of event files; None: no event files.
        step: the update after which training resumes.
    """

    def __init__(self, log: Path, tensorboard: Path | None, step: int) -> None:
        self._writer: Any = None
        if log.exists():
            kept = [line for line, record in whole_records(log) if record["step"] <= step]
            checkpoint.write_text(log, "".join(kept))
        self._file = log.open("a", encoding="utf-8")
        if tensorboard is not None:
            with extra("train"):
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
    """The complete lines of a log with their records; a killed process may leave an incomplete one."""
    with log.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if line.endswith("\n"):
                yield line, record
