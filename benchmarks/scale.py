"""Simulation of a training on a cluster, for the tables of docs/scale.md.

    python -m benchmarks.scale

An update is planned and divided by the trainer's own functions, over sentences of real lengths. Each process computes
its batches; then the gradients are summed in a ring, and all make the same step of the optimiser. The update ends when
the slowest process does. `python -m benchmarks.scale_measured` compares this with real runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Self, cast

import numpy as np

from benchmarks.counting import training_operations
from benchmarks.lengths import SentenceLengths
from jointnmt.data.batches import Lengths, UpdateBatches, shard
from jointnmt.models import ModelConfig
from jointnmt.models.interface import TranslationModel


@dataclass(frozen=True)
class Processor:
    """Costs of one process's share of an update on a processor, in seconds."""

    operation: float
    """Seconds of an operation: matrix products and all that comes with them."""
    batch: float = 0.0
    """Seconds added by each batch."""
    shortest_batch: float = 0.0
    """Least seconds of a batch: on a GPU, those of launching its kernels."""
    step: float = 0.0
    """Seconds of the optimiser and of all else that an update needs once."""
    load: float = 0.0
    """Seconds of preparing a token of a batch, which happens in parallel."""


@dataclass(frozen=True)
class Network:
    """The link of neighbours in a ring of processes."""

    latency: float
    """Seconds per message."""
    bandwidth: float
    """Bytes a second that a process sends while it receives as many."""

    def shared(self, processes: int, cores: int) -> Network:
        """The network if messages go through memory, moved by the cores."""
        slower = max(1.0, processes / cores)
        return Network(self.latency * slower, self.bandwidth / slower)

    def sum_seconds(self, size: float, processes: int) -> float:
        """Seconds of summing `size` bytes over all N processes: each sends 2 (N - 1) messages of an N-th."""
        return 2 * (processes - 1) * (self.latency + size / processes / self.bandwidth)


@dataclass(frozen=True)
class UpdateTime:
    """Seconds of an update by cause."""

    compute: float
    """Seconds of all processes' batches, if no core ever waits."""
    waiting: float
    """Seconds of waiting for the slowest process."""
    summing: float
    """Seconds of summing the gradients over the network."""
    step: float
    """Seconds of the optimiser."""

    @property
    def total(self) -> float:
        """Seconds of the update."""
        return self.compute + self.waiting + self.summing + self.step


@dataclass(frozen=True)
class SimulatedTraining:
    """A model, its text, and how its updates are divided."""

    config: ModelConfig
    vocabulary: int
    """Number of pieces of the target."""
    gradient_bytes: int
    source: Lengths
    """Tokens of each pair's source, end mark included."""
    target: Lengths

    @classmethod
    def of(cls, model: TranslationModel, vocabulary: int, lengths: SentenceLengths) -> Self:
        """The training of a model on sentences of these lengths."""
        size = 4 * sum(parameter.numel() for parameter in model.parameters())
        return cls(cast(ModelConfig, model.config), vocabulary, size, lengths.source, lengths.target)

    def update_time(
        self, update: UpdateBatches, processes: int, processor: Processor, network: Network, cores: int | None = None
    ) -> UpdateTime:
        """Time of one update. `cores` None: each process has one of its own."""
        cores = min(processes, cores or processes)
        shares = [
            [share.pairs for share in shard(update, (self.source, self.target), rank, processes)]
            for rank in range(processes)
        ]
        seconds = [max(self._compute(share, processor), self._load(share, processor)) for share in shares]
        compute = sum(seconds) / cores
        return UpdateTime(
            compute=compute,
            waiting=_last_end(seconds, cores) - compute,
            summing=network.sum_seconds(self.gradient_bytes, processes) if processes > 1 else 0.0,
            step=processor.step * processes / cores,
        )

    def operations(self, batch: Sequence[int] | Lengths) -> float:
        """Operations of a batch's forward and backward pass, padding included."""
        longest = int(self.source[batch].max()), int(self.target[batch].max())
        return float(len(batch) * training_operations(self.config, self.vocabulary, *longest))

    def _compute(self, share: UpdateBatches, processor: Processor) -> float:
        return sum(
            max(processor.shortest_batch, processor.batch + processor.operation * self.operations(batch))
            for batch in share
        )

    def _load(self, share: UpdateBatches, processor: Processor) -> float:
        return processor.load * sum(int(self.target[batch].sum()) for batch in share)


def _last_end(seconds: Sequence[float], cores: int) -> float:
    """Time when the last process ends, if processes that need so many seconds of a core share cores evenly."""
    end = before = 0.0
    for number, each in enumerate(sorted(seconds)):
        end += (each - before) * max(1.0, (len(seconds) - number) / cores)
        before = each
    return end


def mean_time(times: Sequence[UpdateTime]) -> UpdateTime:
    """Mean of each part."""
    return UpdateTime(*np.mean([astuple(each) for each in times], axis=0).tolist())
