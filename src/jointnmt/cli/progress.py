"""How long work shows that it gets on: a bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from jointnmt.cli.console import stderr

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_REPORTS = 30


class Reports:
    """A context in which `tell` may be called as often as one likes."""

    def __init__(self) -> None:
        self._live = stderr().is_terminal and logger.isEnabledFor(logging.INFO)
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn()
        self._bar = Progress(*columns, console=stderr(), disable=not self._live)
        self._tasks: dict[str, TaskID] = {}
        self._told = time.monotonic()

    def tell(self, what: str, done: int, total: int) -> None:
        """So much of `what` is done."""
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done)
        if not self._live and (done == total or time.monotonic() - self._told > SECONDS_BETWEEN_REPORTS):
            self._told = time.monotonic()
            logger.info("%s: %d of %d lines", what, done, total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
