"""CUDA graphs: the operations of a computation are captured once, and replayed as a single launch.

Both decoding and training are launch-bound: a position of a few sentences is hundreds of small operations, an update
with small batches thousands. A graph repeats its operations on the memory of the capture, so it can be replayed as long
as shapes and addresses stay the same. `JOINTNMT_GRAPHS=0` turns this off.
"""

from __future__ import annotations

import functools
import gc
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self

import torch
from torch import Tensor

from jointnmt.ops.backend import graphs_enabled
from jointnmt.ops.out_of_memory import is_out_of_memory

logger = logging.getLogger(__name__)

Computation = Callable[..., Tensor]
"""A function of tensors."""

MOST_GRAPHS = 512
"""Most graphs that a training keeps; each takes some megabytes."""
FREE_SHARE = 0.25
"""Share of the device's memory that must be free for another capture."""

_one_at_a_time = threading.Lock()
"""Graphs share memory: the result of one is copied before the next is replayed."""
uncapturable: set[torch.device] = set()
"""Devices on which a capture has failed; none is attempted there again."""


def captures(device: torch.device) -> bool:
    """Whether computations on this device may be captured."""
    return device.type == "cuda" and device not in uncapturable and graphs_enabled()


def address(tensor: Tensor) -> Hashable:
    """Address, shape, strides and dtype of a tensor: what a graph that reads or writes it depends on."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


class CUDAGraphRunner:
    """Runs decoding positions; replays a position if shapes and addresses are those of the previous one.

    Sentences leave the batch and caches grow, so a graph serves the positions of one batch, and is dropped with it. A
    capture costs about as much as running twice. So each doubles the number of repetitions required for the next one:
    a batch whose sentences leave one after the other is captured only a few times.
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
            x: input; its size may change between calls.
            memory: tensors that `compute` reads or writes besides `x` and the weights. As long as their addresses and
                shapes stay the same, `compute` is taken to be the same.
        """
        addresses = (x.shape, x.dtype, *(address(each) for each in memory))
        if addresses != self._addresses:
            self._addresses, self._repetitions, self._replay = addresses, 0, None
        if self._replay is not None:
            return self._replay(x)
        self._repetitions += 1
        if self._repetitions <= self._patience:
            return compute(x)
        place = shared_place(torch.cuda.current_stream(x.device))
        result, self._replay = compute_and_capture(compute, place, x)
        self._patience = math.inf if self._replay is None else 2 * self._patience
        return result


class GraphsByShape:
    """Runs a computation with recurring input shapes, captured once for each shape.

    Training batches are such inputs: sentences are short, so most batches have one of a few hundred shapes. A shape is
    captured when it occurs the second time, as long as there are fewer than `MOST_GRAPHS` graphs and more than
    `FREE_SHARE` of the device's memory is free. Each replay draws new random numbers from the generator's current
    state, as without graphs.

    Args:
        compute: reads and writes tensors in place, its gradients too, and does nothing else that a replay would have
            to repeat.
    """

    def __init__(self, compute: Computation) -> None:
        self._compute = compute
        self._memory: Hashable = None
        self._runs: Counter[Hashable] = Counter()
        self._replays: dict[Hashable, Computation] = {}
        self._place: CapturePlace | None = None
        self._open = True

    def run(self, *inputs: Tensor, memory: Sequence[Tensor] = ()) -> Tensor:
        """`compute(*inputs)`.

        Args:
            inputs: tensors on one device.
            memory: other tensors that `compute` reads and that may be replaced rather than written in place; when one
                is, all graphs are dropped.
        """
        device = inputs[0].device
        if not captures(device):
            return self._compute(*inputs)
        addresses = tuple(address(each) for each in memory)
        if addresses != self._memory:
            self._memory = addresses
            self._replays.clear()
            self._runs.clear()
        shapes = tuple(each.shape for each in inputs)
        if shapes in self._replays:
            return self._replays[shapes](*inputs)
        self._runs[shapes] += 1
        if self._runs[shapes] != 2 or not self._has_room(device):
            with _without_cached_weights(device):  # as a graph, so that rounding is the same
                return self._compute(*inputs)
        if self._place is None:
            self._place = CapturePlace.on(device)
        result, replay = compute_and_capture(self._compute, self._place, *inputs)
        if replay is not None:
            self._replays[shapes] = replay
        return result

    def close(self) -> None:
        """Free the memory of all graphs and capture no more, as memory is short."""
        if self._replays:
            torch.cuda.synchronize()
            logger.info("memory is short: batches are no longer replayed as CUDA graphs")
        self._replays.clear()
        self._place, self._open = None, False

    def _has_room(self, device: torch.device) -> bool:
        """Whether another graph is allowed and fits in memory outside of PyTorch's cache."""
        if not (self._open and len(self._replays) < MOST_GRAPHS):
            return False
        free, total = torch.cuda.mem_get_info(device)
        if free > FREE_SHARE * total:
            return True
        if free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) <= FREE_SHARE * total:
            return False
        torch.cuda.empty_cache()  # impossible while a graph is captured
        return True


class CapturePlace(NamedTuple):
    """A side stream on which graphs are captured, and the memory pool that they share."""

    stream: torch.cuda.Stream
    pool: torch.cuda.MemPool

    @classmethod
    def on(cls, device: torch.device) -> Self:
        """A new stream and pool on a device."""
        with torch.cuda.device(device):
            return cls(torch.cuda.Stream(device), torch.cuda.MemPool())


@functools.cache
def shared_place(stream: torch.cuda.Stream) -> CapturePlace:
    """The capture place shared by all short-lived graphs that are replayed on `stream`."""
    return CapturePlace.on(stream.device)


def compute_and_capture(
    compute: Computation, place: CapturePlace, *inputs: Tensor
) -> tuple[Tensor, Computation | None]:
    """The result of a computation, and its replay as a CUDA graph on the device of the inputs.

    The replay is None if there is no memory for it now, or if the device cannot capture, which is logged.
    """
    given, device = [each.clone() for each in inputs], inputs[0].device
    current = torch.cuda.current_stream(device)
    with _one_at_a_time:
        place.stream.wait_stream(current)
        try:
            with torch.cuda.stream(place.stream), _without_cached_weights(device):
                result = compute(*given)  # libraries initialise on this stream what must not be captured
                return result, _captured(compute, given, place.pool)
        finally:
            current.wait_stream(place.stream)


def _without_cached_weights(device: torch.device) -> torch.autocast:
    """A context in which autocast casts weights at each use: a graph would read its cache, which is freed on exit."""
    kind = device.type
    return torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), cache_enabled=False)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A context without garbage collection: no other graph may be destroyed while one is captured."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _captured(compute: Computation, given: Sequence[Tensor], pool: torch.cuda.MemPool) -> Computation | None:
    """Capture `compute(*given)` on the current stream, without computing it; return its replay."""
    try:
        graph = torch.cuda.CUDAGraph()
        with _no_collection():
            graph.capture_begin(pool=pool.id, capture_error_mode="thread_local")  # type: ignore[arg-type]
            try:
                result = compute(*given)
            except BaseException:
                with suppress(RuntimeError):  # would hide the cause
                    graph.capture_end()
                raise
            graph.capture_end()
    except RuntimeError as error:
        if is_out_of_memory(error):
            return None
        uncapturable.add(given[0].device)
        logger.warning(
            "CUDA graphs cannot be captured on this device, so small batches are slower (%s). "
            "JOINTNMT_GRAPHS=0 silences this.",
            str(error).partition("\n")[0],
        )
        return None

    def replay(*inputs: Tensor) -> Tensor:
        with _one_at_a_time:
            for place, each in zip(given, inputs, strict=True):
                place.copy_(each)
            graph.replay()
            return result.clone()

    return replay
