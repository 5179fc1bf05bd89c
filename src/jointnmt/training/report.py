"""Reports of updates, and statistics over several of them."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import Any, NamedTuple, Self

from jointnmt.evaluation.likelihood import perplexity


@dataclass(frozen=True)
class Position:
    """Progress of a training: total updates, the current epoch (from 0), and updates done in that epoch."""

    step: int = 0
    epoch: int = 0
    update: int = 0


class Loss(NamedTuple):
    """Label-smoothed loss and plain negative log-likelihood of a batch, summed over target tokens, in nats."""

    loss: float
    nll: float


@dataclass(frozen=True)
class Sums:
    """Sums of an update over its batches and processes."""

    loss: float = 0.0
    """Label-smoothed cross-entropy in nats: the sum over `loss_units` tokens, or of the means of so many sentences."""
    loss_units: float = 0.0
    """Divisor of the loss: number of target tokens, or of sentences."""
    nll: float = 0.0
    """Negative log-likelihood without smoothing, in nats."""
    sentences: float = 0.0
    source_tokens: float = 0.0
    target_tokens: float = 0.0
    cells: float = 0.0
    """Number of grid cells of real source and target tokens."""
    padded_cells: float = 0.0
    """Number of grid cells computed, padding included."""
    splits: float = 0.0
    """Number of splits of batches that did not fit in memory."""
    interrupted: float = 0.0
    """Number of processes that were asked to stop."""


@dataclass(frozen=True)
class StepReport:
    """The report of one update, over all processes."""

    position: Position
    """Position after the update."""
    epoch_updates: int
    """Number of updates per epoch."""
    sums: Sums
    gradient_norm: float
    """Norm of the gradient before clipping."""
    learning_rate: float
    seconds: float
    """Duration of the update, including the wait for its batches."""
    skipped: bool
    """True if the weights were not updated, because the loss or the gradient was not finite."""

    @property
    def ends_epoch(self) -> bool:
        """True for the last update of an epoch."""
        return self.position.update == 0


@dataclass(frozen=True)
class RunningStats:
    """Statistics over several updates."""

    sums: Sums = field(default_factory=Sums)
    updates: int = 0
    skipped: int = 0
    seconds: float = 0.0

    def add(self, report: StepReport) -> RunningStats:
        """The statistics with one more update; the sums of a skipped update, which are not finite, are left out."""
        if report.skipped:
            return RunningStats(self.sums, self.updates, self.skipped + 1, self.seconds + report.seconds)
        last = replace(report.sums, interrupted=0.0)  # irrelevant when the training resumes
        sums = Sums(*(a + b for a, b in zip(astuple(self.sums), astuple(last), strict=True)))
        return RunningStats(sums, self.updates + 1, self.skipped, self.seconds + report.seconds)

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood of a target token, in nats."""
        return self.sums.nll / self.sums.target_tokens if self.sums.target_tokens else math.nan

    def record(self) -> dict[str, Any]:
        """Means over real target tokens, and rates in real tokens of both sides and real cells.

        Means are NaN if all updates were skipped.
        """
        sums, seconds = self.sums, max(self.seconds, 1e-9)
        return {
            "loss": sums.loss / sums.loss_units if sums.loss_units else math.nan,
            "nll": self.nll,
            "perplexity": perplexity(self.nll),
            "updates": self.updates,
            "sentences": int(sums.sentences),
            "target_tokens": int(sums.target_tokens),
            "tokens_per_second": (sums.source_tokens + sums.target_tokens) / seconds,
            "cells_per_second": sums.cells / seconds,
            "padding": 1 - sums.cells / sums.padded_cells if sums.padded_cells else math.nan,
            "splits": int(sums.splits),
            "skipped": self.skipped,
            "seconds": self.seconds,
        }

    def plain(self) -> dict[str, Any]:
        """The statistics as JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Self:
        """The inverse of `plain`."""
        rest = {each.name: values[each.name] for each in fields(cls) if each.name != "sums"}
        return cls(sums=Sums(**values["sums"]), **rest)
