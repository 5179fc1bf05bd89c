"""Progress of a training: a live display on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Protocol

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from jointnmt.training.report import RunningStats, StepReport

logger = logging.getLogger(__name__)


RECENT_UPDATES = 20
"""Number of updates that the live display averages over."""

REST = Column(ratio=1, no_wrap=True, overflow="ellipsis")
"""A column of a live display that takes the remaining width of the terminal, and is truncated to it."""


class Display(Protocol):
    """Shows the progress of a training."""

    def preparing(self, what: str, done: int, total: int | None) -> None:
        """Before the first update: `done` sentence pairs of `total` (None: unknown) have been processed."""

    def begin(self, step: int, total: int | None) -> None:
        """Training starts after update `step`, and ends at update `total` (None: unknown)."""

    def step(self, report: StepReport, total: int | None) -> None:
        """An update is done."""

    def summary(self, step: int, record: Mapping[str, Any]) -> None:
        """A log line is written: means over the updates since the previous one."""

    def validating(self) -> None:
        """A validation begins."""

    def end(self) -> None:
        """Training has ended or stopped."""


class NoDisplay:
    """A display that shows nothing."""

    def preparing(self, what: str, done: int, total: int | None) -> None: ...
    def begin(self, step: int, total: int | None) -> None: ...
    def step(self, report: StepReport, total: int | None) -> None: ...
    def summary(self, step: int, record: Mapping[str, Any]) -> None: ...
    def validating(self) -> None: ...
    def end(self) -> None: ...


class LogDisplay(NoDisplay):
    """A display that writes a log line at each summary."""

    def __init__(self) -> None:
        self.total: int | None = None

    def begin(self, step: int, total: int | None) -> None:
        self.total = total

    def step(self, report: StepReport, total: int | None) -> None:
        self.total = total

    def summary(self, step: int, record: Mapping[str, Any]) -> None:
        seconds = record["seconds"] / max(record["updates"] + record["skipped"], 1)
        left = "" if self.total is None else f", {_duration((self.total - step) * seconds)} left"
        logger.info("update %s%s: %s%s", step, f"/{self.total}" if self.total else "", _figures(record), left)


class LiveDisplay(NoDisplay):
    """A display in one line: progress of the preparation, then of the updates with loss and speed."""

    def __init__(self, console: Console) -> None:
        self.bar = Progress(
            TaskProgressColumn(),
            TimeRemainingColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}{task.fields[figures]}", table_column=REST),
            console=console,
            refresh_per_second=4,
            expand=True,
        )
        self.task = self.bar.add_task("training", total=None, figures="")
        self.recent: deque[StepReport] = deque(maxlen=RECENT_UPDATES)

    def preparing(self, what: str, done: int, total: int | None) -> None:
        if what != self.bar.tasks[0].description:
            self.bar.reset(self.task, description=what)
        self.bar.update(self.task, completed=done, total=total)
        self.bar.start()

    def begin(self, step: int, total: int | None) -> None:
        self.bar.reset(self.task, description="training", figures="")
        self.bar.update(self.task, completed=step, total=total)
        self.bar.start()

    def step(self, report: StepReport, total: int | None) -> None:
        self.recent.append(report)
        figures = _figures(reduce(RunningStats.add, self.recent, RunningStats()).record())
        description = f"epoch {report.position.epoch + (not report.ends_epoch)}"
        self.bar.update(
            self.task, completed=report.position.step, total=total, description=description, figures=f": {figures}"
        )

    def validating(self) -> None:
        self.bar.update(self.task, description="validating")

    def end(self) -> None:
        self.bar.stop()


def _figures(record: Mapping[str, Any]) -> str:
    if not record["updates"]:
        return f"loss or gradient not finite, {record['skipped']} updates skipped and none done"
    return (
        f"loss {record['loss']:.3f}, perplexity {record['perplexity']:.2f}, "
        f"{record['tokens_per_second']:,.0f} tokens/s, {record['cells_per_second']:,.0f} cells/s"
    )


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


def choose_display(console: Console) -> Display:
    """A live display on a terminal, log lines elsewhere, and nothing if information is not logged."""
    if not logging.getLogger("jointnmt").isEnabledFor(logging.INFO):
        return NoDisplay()
    return LiveDisplay(console) if console.is_terminal else LogDisplay()


def shown(display: Display, what: str) -> Callable[[int], None]:
    """A callback that shows the number of pairs done; the display starts immediately."""
    display.preparing(what, 0, None)
    return lambda done: display.preparing(what, done, None)
