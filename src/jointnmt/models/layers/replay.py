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

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

Computation = Callable[[Tensor], Tensor]

_recording = threading.Lock()


def records(device: torch.device) -> bool:
    """Whether computations on this device may be recorded."""
    return device.type == "cuda" and os.environ.get("JOINTNMT_GRAPHS", "1") != "0"


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
        place = (x.shape, x.dtype, *((each.data_ptr(), each.shape, each.dtype) for each in memory))
        if place != self._place:
            self._place, self._repetitions, self._replay = place, 0, None
        self._repetitions += 1
        if self._replay is None and self._repetitions > self._patience:
            try:
                with _recording:
                    self._replay = record(compute, x)
                self._patience *= 2
            except RuntimeError as error:
                _warn(str(error).partition("\n")[0])
                self._patience = math.inf
        return compute(x) if self._replay is None else self._replay(x)


@functools.cache
def _warn(reason: str) -> None:
    """Once for each reason."""
    logger.warning(
        "a position of decoding could not be recorded as a CUDA graph, so that decoding is slower (%s). "
        "JOINTNMT_GRAPHS=0 silences this.",
        reason,
    )


def record(compute: Computation, x: Tensor) -> Computation:
    """Record `compute` as a CUDA graph on the device of `x`; it is run once, too.

    Raises:
        RuntimeError: if the graph cannot be made.
    """
    device, given = x.device, x.clone()
    side, graph = _side_stream(device), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream(device))
    # Weights that autocast has in its cache are freed with it: the graph casts its own.
    mixed = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
    with torch.cuda.stream(side), torch.autocast(device.type, mixed[1], mixed[0], cache_enabled=False):
        compute(given)  # libraries set up on this stream what a graph must not hold
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            result = compute(given)
        finally:
            graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(side)

    def replay(x: Tensor) -> Tensor:
        given.copy_(x)
        graph.replay()
        return result.clone()  # the next replay writes to the same memory

    return replay


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """The one stream of a device to record on."""
    return torch.cuda.Stream(device)
