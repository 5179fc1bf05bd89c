"""What a training does on a cluster, simulated: the tables of docs/scale.md.

    python -m benchmarks.scale

An update is planned and shared out as the trainer does it, by the same functions, over sentences of real lengths. Each
process computes its batches; then the gradients are summed in a ring, and all make the same step of the optimiser. The
update has ended when the slowest process has. `python -m benchmarks.scale_measured` holds this against real runs.
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
    """What one process's share of an update takes there, in seconds."""

    operation: float
    """Of the matrix products and all that comes with them."""
    batch: float = 0.0
    """On top for each batch."""
    shortest_batch: float = 0.0
    """No batch takes less: to launch its kernels, on a GPU."""
    step: float = 0.0
    """Of the optimiser and of what else an update needs once."""
    load: float = 0.0
    """To make a token of a batch ready, which happens meanwhile."""


@dataclass(frozen=True)
class Network:
    """What joins neighbours in a ring of processes."""

    latency: float
    """Seconds of a message."""
    bandwidth: float
    """Bytes a second that a process sends, while it receives as many."""

    def shared(self, processes: int, cores: int) -> Network:
        """Where the messages go through memory, and cores move them."""
        slower = max(1.0, processes / cores)
        return Network(self.latency * slower, self.bandwidth / slower)

    def sum_seconds(self, size: float, processes: int) -> float:
        """Of the sum of `size` bytes over all processes: each sends 2 (N - 1) messages of an N-th."""
        return 2 * (processes - 1) * (self.latency + size / processes / self.bandwidth)


@dataclass(frozen=True)
class UpdateTime:
    """Where the seconds of an update go."""

    compute: float
    """Of all processes' batches, if no core ever waits."""
    waiting: float
    """For the slowest process."""
    summing: float
    """The gradients over the network."""
    step: float
    """Of the optimiser."""

    @property
    def total(self) -> float:
        """Of the update."""
        return self.compute + self.waiting + self.summing + self.step


@dataclass(frozen=True)
class SimulatedTraining:
    """What is trained, and how its updates are dealt."""

    config: ModelConfig
    vocabulary: int
    """Pieces of the target."""
    gradient_bytes: int
    source: Lengths
    """Tokens of each pair's source, end mark counted."""
    target: Lengths

    @classmethod
    def of(cls, model: TranslationModel, vocabulary: int, lengths: SentenceLengths) -> Self:
        """A model's, on sentences of these lengths."""
        size = 4 * sum(parameter.numel() for parameter in model.parameters())
        return cls(cast(ModelConfig, model.config), vocabulary, size, lengths.source, lengths.target)

    def update_time(
        self, update: UpdateBatches, processes: int, processor: Processor, network: Network, cores: int | None = None
    ) -> UpdateTime:
        """One update's. None for `cores`: each process has one of its own."""
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
        """Of a batch's forward and backward pass, padding included."""
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
    """When the last of the processes ends that need so many seconds of a core, and share these evenly."""
    end = before = 0.0
    for number, each in enumerate(sorted(seconds)):
        end += (each - before) * max(1.0, (len(seconds) - number) / cores)
        before = each
    return end


def mean_time(times: Sequence[UpdateTime]) -> UpdateTime:
    """Part by part."""
    return UpdateTime(*np.mean([astuple(each) for each in times], axis=0).tolist())
