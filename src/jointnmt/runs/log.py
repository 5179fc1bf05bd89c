"""The log of a run, as JSON lines and for TensorBoard, consistent when a training resumes from a checkpoint."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jointnmt.extras import extra
from jointnmt.files import write_text

logger = logging.getLogger(__name__)

NUMBERS = ("perplexity", "nll", "bleu", "chrf", "loss", "seconds", "epoch")
"""Keys with numbers that readers of a log compute with."""


class RunLog:
    """Writes records to `log.jsonl`, and their numbers to TensorBoard, each exactly once.

    Args:
        log: the JSON-lines file. Records after `step`, second ones of the same event and step, and an incomplete last
            line are removed. Damaged lines are moved to a file beside it, and reported.
        tensorboard: the directory of event files; None: no event files.
        step: the update after which training resumes.
        again: events of this step that will be logged again: their records, and their gates', are removed.
    """

    def __init__(self, log: Path, tensorboard: Path | None, step: int, again: Collection[str] = ()) -> None:
        self._writer: Any = None
        kept = _cut_back(log, step, again) if log.exists() else {}
        self._known = kept.keys()
        self._file = log.open("a", encoding="utf-8")
        if tensorboard is not None:
            with extra("train"):
                from torch.utils.tensorboard import SummaryWriter  # slow to import

            # The events of this step are purged, too, as some of them are logged again; the others are added below.
            resumes = any(tensorboard.glob("events.*"))  # from update 0 if it was killed before its first save
            self._writer = SummaryWriter(str(tensorboard), purge_step=step if resumes else None)
            for record in kept.values():
                if record["step"] == step:
                    self._add_scalars(record)

    def has(self, event: str, step: int) -> bool:
        """Whether there was such a record when the training resumed."""
        return any(known[:2] == (event, step) for known in self._known)

    def write(self, event: str, step: int, **values: Any) -> None:
        """Write a record."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        record = {"event": event, "step": step, **finite}
        self._file.write(json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n")
        self._file.flush()
        self._add_scalars(record)

    def _add_scalars(self, record: dict[str, Any]) -> None:
        if self._writer is None:
            return
        for key, value in record.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and key != "step":
                self._writer.add_scalar(f"{record['event']}/{key}", value, record["step"])

    def sync(self) -> None:
        """Wait until all records are on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True)
class _Line:
    """A line of a log."""

    number: int
    text: bytes
    record: dict[str, Any] | None
    """Content of the line; None: damaged."""


def read_records(log: Path) -> list[dict[str, Any]]:
    """The records of a log; damaged lines are counted in a warning.

    A truncated last line is left out silently: a training may be writing it, or was killed while it did.
    """
    lines = list(_lines(log))
    damaged = [line for line in lines if line.record is None]
    _report_damaged(log, damaged, "left out")
    return [line.record for line in lines if line.record is not None]


def validations(log: Path, of_steps: list[int] | None = None) -> list[dict[str, Any]]:
    """The records of validations, and of averages at the end; with `of_steps`, only for weights of these updates."""
    records = [record for record in read_records(log) if record["event"] in ("validation", "average")]
    return [each for each in records if of_steps is None or each.get("steps", [each["step"]]) == of_steps]


def _cut_back(log: Path, step: int, again: Collection[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rewrite a log up to a step, and return its records by event, step and averaged steps."""
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    damaged: list[_Line] = []
    text: list[bytes] = []
    for line in _lines(log):
        record = line.record
        if record is None:
            damaged.append(line)
            continue
        # Gates of older versions do not state whether they belong to the validation or to the average at its step.
        of = line.text if record["event"] == "gates" else record.get("steps")
        identity = record["event"], record["step"], str(of)
        repeated = record["step"] == step and _origin(record) in again
        if record["step"] <= step and identity not in kept and not repeated:
            kept[identity] = record
            text.append(line.text.rstrip(b"\n") + b"\n")
    if damaged:
        aside = log.with_name(f"{log.name}.damaged")
        with aside.open("ab") as file:
            file.writelines(line.text for line in damaged)
        _report_damaged(log, damaged, f"moved to {aside.name}")
    if b"".join(text) != log.read_bytes():
        write_text(log, b"".join(text).decode("utf-8"))
    return kept


def _origin(record: dict[str, Any]) -> str:
    """The event that a record belongs to: gates belong to a validation or to an average."""
    if record["event"] != "gates":
        return str(record["event"])
    return "average" if "steps" in record else "validation"


def _lines(log: Path) -> Iterator[_Line]:
    with log.open("rb") as file:
        for number, text in enumerate(file, start=1):
            record = _parse(text)
            if record is not None or text.endswith(b"\n"):
                yield _Line(number, text, record)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if it is not a valid record."""
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        return None
    steps = record.get("steps", [])
    numbers = [record.get(key) for key in NUMBERS]
    whole = isinstance(steps, list) and all(_is_count(step) for step in [record.get("step"), *steps])
    return record if whole and all(number is None or _is_number(number) for number in numbers) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _report_damaged(log: Path, damaged: list[_Line], what: str) -> None:
    if damaged:
        count = "1 line is" if len(damaged) == 1 else f"{len(damaged):,} lines are"
        logger.warning("%s: %s damaged, the first being line %d; %s", log, count, damaged[0].number, what)
