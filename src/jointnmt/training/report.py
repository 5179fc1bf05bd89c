"""What the trainer tells after each update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Position:
    """Where training is: updates done in all, the epoch it is in, and how many of that epoch's updates are done."""

    step: int = 0
    epoch: int = 0
    update: int = 0


class Loss(NamedTuple):
    """Of a batch: the label-smoothed loss and the plain negative log-likelihood, summed over target tokens, in nats."""

    loss: float
    nll: float


@dataclass(frozen=True)
class Sums:
    """What an update sums up over its batches and over the processes."""

    loss: float = 0.0
    """Label-smoothed cross entropy in nats; of `loss_units` tokens, or that of so many sentences' means."""
    loss_units: float = 0.0
    """What the loss is divided by: target tokens, or sentences."""
    nll: float = 0.0
    """Negative log-likelihood without smoothing, in nats."""
    sentences: float = 0.0
    source_tokens: float = 0.0
    target_tokens: float = 0.0
    cells: float = 0.0
    """Grid cells whose source and target token are both real."""
    padded_cells: float = 0.0
    """Grid cells computed, padding included."""
    splits: float = 0.0
    """How often a batch was split because it did not fit in memory."""
    interrupted: float = 0.0
    """How many processes have been asked to stop."""


@dataclass(frozen=True)
class StepReport:
    """What one update did, over all processes."""

    position: Position
    """After the update."""
    epoch_updates: int
    """Updates of a whole epoch."""
    sums: Sums
    gradient_norm: float
    """Length of the gradient before clipping."""
    learning_rate: float
    seconds: float
    """Waiting for its batches included."""
    skipped: bool
    """True if the weights were left as they were, because the loss or the gradient was not finite."""

    @property
    def ends_epoch(self) -> bool:
        """True for the last update of an epoch."""
        return self.position.update == 0
