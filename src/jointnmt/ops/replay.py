"""Decoding positions on a CPU: the kernels that one calls are recorded, and called again in a single call.

A position of few rows costs more time in Python than in kernels. Its calls are those of the position before, on the
same memory, until sentences leave the batch or caches grow; what changes between positions is written in place.
`JOINTNMT_GRAPHS=0` turns this off, as it does CUDA graphs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from jointnmt.ops.backend import kernels_read
from jointnmt.ops.native import library
from jointnmt.ops.native.recording import Recording, active

ATTEMPTS = 2
"""The first may meet what is done once only, such as the packing of weights."""


def replays(x: Tensor) -> bool:
    """Whether computations on tensors like `x` may be recorded."""
    return (
        kernels_read(x)
        and active() is None
        and not torch.autograd.profiler._is_profiler_enabled
        and os.environ.get("JOINTNMT_GRAPHS", "1") != "0"
    )


class KernelRunner:
    """Runs a computation whose shapes and addresses often are those of the time before, and then replays it.

    Recording is running, with some time more for notes. What PyTorch computes is not recorded: a computation that is
    not made of kernels alone runs as it is.
    """

    def __init__(self) -> None:
        self._addresses: Hashable = None
        self._recording: Recording | None = None
        self._given = self._result = torch.empty(0)
        self.obstacles: list[str] = []
        """What has kept recordings from being replayed."""

    def run(self, compute: Callable[[Tensor], Tensor], x: Tensor, memory: Sequence[Tensor]) -> Tensor:
        """`compute(x)`, without gradient; the result is valid until the next run.

        Args:
            compute: reads and writes tensors in place, and does nothing else that a replay would have to repeat.
            x: of the size that it had before, or another.
            memory: what `compute` reads or writes besides `x` and the weights. Where all of it lies where it lay, in
                the same shapes, `compute` is taken to be the same.
        """
        if len(self.obstacles) == ATTEMPTS:
            return compute(x)
        addresses = (torch.get_num_threads(), x.dtype, x.shape, *((each.data_ptr(), each.shape) for each in memory))
        if self._recording is None or addresses != self._addresses:
            return self._record(compute, x, addresses)
        self._given.copy_(x)
        kernels = library()
        assert kernels is not None
        if self._recording.replay(kernels):
            raise MemoryError("no memory left for a decoding position")
        return self._result

    def _record(self, compute: Callable[[Tensor], Tensor], x: Tensor, addresses: Hashable) -> Tensor:
        self._recording = None  # its memory is free before that of the next is taken
        recording = Recording()
        self._given = x.clone()
        with recording.recorded():
            self._result = compute(self._given)
        if recording.obstacle is None:
            self._recording, self._addresses = recording, addresses
        else:
            self.obstacles.append(recording.obstacle)
        return self._result
