"""Decoding on a GPU: what computes a position is recorded as a CUDA graph, and replayed as a single launch.

A position of a few sentences is hundreds of small operations, which a GPU ends sooner than Python asks for them. They
are the same at each position, on the same memory, until sentences leave the batch or caches grow: what is written
anew between positions is written in place. So a graph serves the positions of one batch, and is dropped with it.
`JOINTNMT_GRAPHS=0` turns recording off.
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


def records(device: torch.device) -> bool:
    """Whether computations on this device may be recorded."""
    return device.type == "cuda" and device not in _given_up and os.environ.get("JOINTNMT_GRAPHS", "1") != "0"


class Recorder:
    """Runs a computation whose shapes and addresses often are those of the time before, and then replays it.

    A recording costs about as much as running twice. So each doubles the number of repetitions that the next one needs:
    a batch whose sentences leave one after the other is recorded a few times only.
    """

    def __init__(self) -> None:
        self._place: Hashable = None
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
        place = (x.shape, x.dtype, *((each.data_ptr(), each.shape, each.stride(), each.dtype) for each in memory))
        if place != self._place:
            self._place, self._repetitions, self._replay = place, 0, None
        self._repetitions += 1
        if self._replay is None and self._repetitions > self._patience:
            self._replay = _recorded(compute, x)
            self._patience = math.inf if self._replay is None else 2 * self._patience
        return compute(x) if self._replay is None else self._replay(x)


def _recorded(compute: Computation, x: Tensor) -> Computation | None:
    """A replay of `compute`, or None: there is no memory for it now, or the device does not record, which is logged."""
    try:
        with _one_at_a_time:
            return record(compute, x)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        _given_up.add(x.device)
        logger.warning(
            "decoding cannot be recorded as a CUDA graph here, and is slower without (%s). JOINTNMT_GRAPHS=0 silences "
            "this.",
            str(error).partition("\n")[0],
        )
        return None


def record(compute: Computation, x: Tensor) -> Computation:
    """Record `compute` as a CUDA graph on the device of `x`; it is run once, too.

    Raises:
        RuntimeError: if the graph cannot be made.
    """
    given, current = x.clone(), torch.cuda.current_stream(x.device)
    side, pool = _studio(current)
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
def _studio(stream: torch.cuda.Stream) -> tuple[torch.cuda.Stream, torch.cuda.MemPool]:
    """Where graphs that are replayed on `stream` are recorded: on a stream beside it, in memory that they share."""
    with torch.cuda.device(stream.device):
        return torch.cuda.Stream(stream.device), torch.cuda.MemPool()
