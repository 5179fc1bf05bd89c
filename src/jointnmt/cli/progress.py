"""Progress of long computations: a bar on a terminal, a log line every half minute elsewhere."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from jointnmt.cli.console import stderr

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 30

REST = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
"""Column of the task's description, in the width that the numbers leave."""


class ProgressBars:
    """Context that shows progress; `update` may be called at any rate, and `unit` names what is counted."""

    def __init__(self, unit: str = "lines") -> None:
        self._unit = unit
        self._live = stderr().is_terminal and logger.isEnabledFor(logging.INFO)
        columns = TaskProgressColumn(), TimeRemainingColumn(), MofNCompleteColumn(), BarColumn(bar_width=10), REST
        self._bar = Progress(*columns, console=stderr(), disable=not self._live, expand=True)
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, tuple[float, int]] = {}
        self._logged = time.monotonic()

    def update(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` units of the task `what` are complete."""
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
            self._began[what] = time.monotonic(), done
        rate = self._rate(what, done)
        self._bar.update(self._tasks[what], completed=done, description=f"{what}{_per_second(rate)}")
        if not self._live and (done == total or time.monotonic() - self._logged > SECONDS_BETWEEN_LINES):
            self._logged = time.monotonic()
            left = f", {timedelta(seconds=round((total - done) / rate))} left" if rate and done < total else ""
            logger.info("%s: %d of %d %s%s%s", what, done, total, self._unit, _per_second(rate), left)

    def _rate(self, what: str, done: int) -> float:
        """Units of a task per second since its first update here; 0: not known yet."""
        began, before = self._began[what]
        seconds = time.monotonic() - began
        return (done - before) / seconds if seconds > 0 else 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def _per_second(rate: float) -> str:
    return f", {rate:,.1f} a second" if rate else ""
