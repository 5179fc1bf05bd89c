"""Decoding positions on a CPU: the kernels that one calls are recorded, and called again in a single call.

A position of few rows costs more time in Python than in kernels. Its calls are those of the position before, on the
same memory, until caches grow; what changes between positions is written in place. Sentences may leave the batch.
`JOINTNMT_GRAPHS=0` turns this off, as it does CUDA graphs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from jointnmt.ops.backend import implementation, kernels_read
from jointnmt.ops.cuda_graph import Computation
from jointnmt.ops.linear import MANY_ROWS
from jointnmt.ops.native import library
from jointnmt.ops.native.recording import Recording, active

ATTEMPTS = 2
"""The first may meet what is done once only, such as the packing of weights."""

_proven: WeakKeyDictionary[nn.Module, dict[Hashable, Hashable]] = WeakKeyDictionary()
"""The kernels that a position of a model was seen to consist of, and the weights that they read, for each kind of
input."""


def replays(x: Tensor) -> bool:
    """Whether computations on tensors like `x` may be recorded."""
    return (
        kernels_read(x)
        and x.numel() > 0
        and active() is None
        and not torch.autograd.profiler._is_profiler_enabled
        and os.environ.get("JOINTNMT_GRAPHS", "1") != "0"
    )


class KernelRunner:
    """Runs a computation whose addresses often are those of the time before, and then replays it.

    What PyTorch computes is not recorded: a computation that is not made of kernels alone runs as it is. To see that
    takes time, so it is looked at once for each model: if the same kernels are called again, and read results of each
    other, the same weights, and what is given, nothing else will lie between them.
    """

    def __init__(self) -> None:
        self._addresses: Hashable = None
        self._recording: Recording | None = None
        self._given = self._result = torch.empty(0)
        self.obstacles: list[str] = []
        """What has kept recordings from being replayed."""

    def run(self, model: nn.Module, compute: Computation, x: Tensor, memory: Callable[[], Sequence[Tensor]]) -> Tensor:
        """`compute(x)`, without gradient.

        Args:
            model: whose weights it reads.
            compute: reads and writes tensors in place, and does nothing else that a replay would have to repeat.
            x: with the sentences as its first axis; there may be fewer than before.
            memory: gives what `compute` reads or writes besides `x` and the weights, which may begin to exist in
                `compute`, and of which only the first axis may change its size, with that of `x`. Where all of it lies
                where it lay, `compute` is taken to be the same.
        """
        if len(self.obstacles) == ATTEMPTS:
            return compute(x)
        size = x.shape[0]
        if self._recording is None or size > self._given.shape[0] or _addresses(x, memory()) != self._addresses:
            return self._record(model, compute, x, memory)
        self._given[:size].copy_(x)
        kernels = library()
        assert kernels is not None
        if self._recording.replay(kernels, size):
            raise MemoryError("no memory left for a decoding position")
        return self._result[:size].clone()

    def _record(
        self, model: nn.Module, compute: Computation, x: Tensor, memory: Callable[[], Sequence[Tensor]]
    ) -> Tensor:
        self._recording = None  # its memory is free before that of the next is taken
        recording, self._given = Recording(x.shape[0]), x.clone()
        proven = _proven.setdefault(model, {})
        # Layouts are the same but where an axis has one element, or PyTorch's products are faster for many rows.
        kind = x.dtype, tuple(min(size, 2) for size in x.shape), x.numel() // x.shape[-1] >= MANY_ROWS, implementation()
        with recording.recorded(watched=kind not in proven):
            self._result = compute(self._given)
        read = memory()
        weights = recording.read.difference([self._given.data_ptr()], (each.data_ptr() for each in read))
        found = tuple(recording.kernels), frozenset(weights)
        if recording.obstacle is None and proven.setdefault(kind, found) != found:
            recording.obstacle = "other kernels or tensors than before"
            proven.pop(kind, None)  # unless another thread has been faster
        if recording.obstacle is None:
            self._recording, self._addresses = recording, _addresses(x, read)
        else:
            self.obstacles.append(recording.obstacle)
        return self._result.clone()


def _addresses(x: Tensor, memory: Sequence[Tensor]) -> Hashable:
    """What a recording depends on, besides the number of sentences."""
    return torch.get_num_threads(), x.dtype, x.shape[1:], *[each.data_ptr() for each in memory]
