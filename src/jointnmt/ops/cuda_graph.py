"""CUDA graphs for decoding: the operations of a position are captured once and replayed as a single launch.

Decoding is launch-bound: a position of a few sentences is hundreds of small operations. They are the same at each
position, on the same memory, until sentences leave the batch or caches grow; what changes between positions is written
in place. So a graph serves the positions of one batch, and is dropped with it. `JOINTNMT_GRAPHS=0` turns this off.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

Computation = Callable[[Tensor], Tensor]

_one_at_a_time = threading.Lock()
"""Graphs share memory: what one computes is fetched before the next is replayed."""
_given_up: set[torch.device] = set()


def captures(device: torch.device) -> bool:
    """Whether computations on this device may be captured."""
    return device.type == "cuda" and device not in _given_up and os.environ.get("JOINTNMT_GRAPHS", "1") != "0"


class CUDAGraphRunner:
    """Runs a computation whose shapes and addresses often are those of the time before, and then replays it.

    A capture costs about as much as running twice. So each doubles the number of repetitions that the next one needs:
    a batch whose sentences leave one after the other is captured a few times only.
    """

    def __init__(self) -> None:
        self._addresses: Hashable = None
        self._repetitions = 0
        self._patience: float = 1
        self._replay: Computation | None = None

    def run(self, compute: Computation, x: Tensor, memory: Sequence[Tensor]) -> Tensor:
        """`compute(x)`, without gradient.

        Args:
            compute: reads and writes tensors in place, and does nothing else that a replay would have to repeat.
            x: of the size that it had before, or another.
            memory: what `compute` reads or writes besides `x` and the weights. Where all of it lies where it lay, in
                the same shapes, `compute` is taken to be the same.
        """
        addresses = (x.shape, x.dtype, *((each.data_ptr(), each.shape, each.stride(), each.dtype) for each in memory))
        if addresses != self._addresses:
            self._addresses, self._repetitions, self._replay = addresses, 0, None
        self._repetitions += 1
        if self._replay is None and self._repetitions > self._patience:
            self._replay = _captured(compute, x)
            self._patience = math.inf if self._replay is None else 2 * self._patience
        return compute(x) if self._replay is None else self._replay(x)


def _captured(compute: Computation, x: Tensor) -> Computation | None:
    """A replay of `compute`, or None: there is no memory for it now, or the device cannot capture, which is logged."""
    try:
        with _one_at_a_time:
            return capture(compute, x)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        _given_up.add(x.device)
        logger.warning(
            "decoding cannot be captured as a CUDA graph here, and is slower without (%s). JOINTNMT_GRAPHS=0 silences "
            "this.",
            str(error).partition("\n")[0],
        )
        return None


def capture(compute: Computation, x: Tensor) -> Computation:
    """Capture `compute` as a CUDA graph on the device of `x`; it is run once, too.

    Raises:
        RuntimeError: if the graph cannot be made.
    """
    given, current = x.clone(), torch.cuda.current_stream(x.device)
    side, pool = _capture_pool(current)
    graph, device = torch.cuda.CUDAGraph(), x.device.type
    # Weights that autocast has in its cache are freed with it: the graph casts its own.
    mixed = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    side.wait_stream(current)
    try:
        with torch.cuda.stream(side), torch.autocast(device, mixed[1], mixed[0], cache_enabled=False):
            compute(given)  # libraries set up on this stream what a graph must not hold
            graph.capture_begin(pool=pool.id, capture_error_mode="thread_local")  # type: ignore[arg-type]
            try:
                result = compute(given)
            except BaseException:
                with suppress(RuntimeError):  # which would hide why
                    graph.capture_end()
                raise
            graph.capture_end()
    finally:
        current.wait_stream(side)

    def replay(x: Tensor) -> Tensor:
        with _one_at_a_time:
            given.copy_(x)
            graph.replay()
            return result.clone()

    return replay


@functools.cache
def _capture_pool(stream: torch.cuda.Stream) -> tuple[torch.cuda.Stream, torch.cuda.MemPool]:
    """Where graphs that are replayed on `stream` are captured: a side stream, and memory that they share."""
    with torch.cuda.device(stream.device):
        return torch.cuda.Stream(stream.device), torch.cuda.MemPool()
