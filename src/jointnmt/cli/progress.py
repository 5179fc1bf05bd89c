"""Progress of long computations: a bar on a terminal, a log line every half minute elsewhere."""

from __future__ import annotations

import logging
import time
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


class ProgressBars:
    """A context whose `update` may be called as often as one likes; `unit` names what is counted."""

    def __init__(self, unit: str = "lines") -> None:
        self._unit = unit
        self._live = stderr().is_terminal and logger.isEnabledFor(logging.INFO)
        rest = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        columns = TaskProgressColumn(), TimeRemainingColumn(), MofNCompleteColumn(), BarColumn(bar_width=10), rest
        self._bar = Progress(*columns, console=stderr(), disable=not self._live, expand=True)
        self._tasks: dict[str, TaskID] = {}
        self._logged = time.monotonic()

    def update(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` units of the task `what` are computed."""
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done)
        if not self._live and (done == total or time.monotonic() - self._logged > SECONDS_BETWEEN_LINES):
            self._logged = time.monotonic()
            logger.info("%s: %d of %d %s", what, done, total, self._unit)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
