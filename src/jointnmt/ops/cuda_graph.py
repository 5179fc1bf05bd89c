"""CUDA graphs: the operations of a computation are captured once, and replayed as a single launch.

Both decoding and training are launch-bound: a position of a few sentences is hundreds of small operations, an update
with small batches thousands. A graph repeats its operations on the memory of the capture: where shapes and addresses
are the same again, it serves again. `JOINTNMT_GRAPHS=0` turns this off.
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
"""Of tensors."""

MOST_GRAPHS = 512
"""Of a training; each takes some megabytes."""
FREE_SHARE = 0.25
"""Of the device's memory: with less, nothing more is captured."""

_one_at_a_time = threading.Lock()
"""Graphs share memory: what one computes is fetched before the next is replayed."""
uncapturable: set[torch.device] = set()
"""Devices on which a capture has failed: no other is tried there."""


def captures(device: torch.device) -> bool:
    """Whether computations on this device may be captured."""
    return device.type == "cuda" and device not in uncapturable and graphs_enabled()


def address(tensor: Tensor) -> Hashable:
    """Where a tensor lies, and how: what a graph that reads or writes it depends on."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


class CUDAGraphRunner:
    """Runs a position of decoding: its shapes and addresses often are those of the one before, and then it is replayed.

    Sentences leave the batch and caches grow, so a graph serves the positions of one batch, and is dropped with it. A
    capture costs about as much as running twice. So each doubles the number of repetitions that the next one needs:
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
    """Runs a computation whose inputs come in the same shapes again and again: it is captured once for each.

    A training's batches are such inputs: sentences are short, so that most batches have one of a few hundred shapes.
    What comes a second time is captured, as long as there are no more than `MOST_GRAPHS` graphs, and `FREE_SHARE` of
    the device's memory is not in use. Random numbers are drawn anew by each replay, from the generator's state at that
    time, as without graphs.

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
            inputs: all on one device.
            memory: what `compute` reads besides its inputs and is sometimes replaced, rather than written in place:
                then all graphs are dropped.
        """
        device = inputs[0].device
        if not captures(device):
            return self._compute(*inputs)
        lies = tuple(address(each) for each in memory)
        if lies != self._memory:
            self._memory = lies
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
        """Free the memory of all graphs, and capture no others: memory is short."""
        if self._replays:
            torch.cuda.synchronize()
            logger.info("memory is short: batches are not replayed as CUDA graphs any more")
        self._replays.clear()
        self._place, self._open = None, False

    def _has_room(self, device: torch.device) -> bool:
        """Whether another graph is wanted and there is memory for one, outside of PyTorch's cache."""
        if not (self._open and len(self._replays) < MOST_GRAPHS):
            return False
        free, total = torch.cuda.mem_get_info(device)
        if free > FREE_SHARE * total:
            return True
        if free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) <= FREE_SHARE * total:
            return False
        torch.cuda.empty_cache()  # which nothing can do while a graph is captured
        return True


class CapturePlace(NamedTuple):
    """Where graphs are captured: a stream besides the usual one, and memory that they share."""

    stream: torch.cuda.Stream
    pool: torch.cuda.MemPool

    @classmethod
    def on(cls, device: torch.device) -> Self:
        """Another one on a device."""
        with torch.cuda.device(device):
            return cls(torch.cuda.Stream(device), torch.cuda.MemPool())


@functools.cache
def shared_place(stream: torch.cuda.Stream) -> CapturePlace:
    """That of all graphs which are dropped soon and are replayed on `stream`."""
    return CapturePlace.on(stream.device)


def compute_and_capture(
    compute: Computation, place: CapturePlace, *inputs: Tensor
) -> tuple[Tensor, Computation | None]:
    """The result of a computation, and its replay as a CUDA graph on the device of the inputs.

    There is no replay if there is no memory for it now, or if the device cannot capture, which is logged.
    """
    given, device = [each.clone() for each in inputs], inputs[0].device
    current = torch.cuda.current_stream(device)
    with _one_at_a_time:
        place.stream.wait_stream(current)
        try:
            with torch.cuda.stream(place.stream), _without_cached_weights(device):
                result = compute(*given)  # libraries set up on this stream what a graph must not hold
                return result, _captured(compute, given, place.pool)
        finally:
            current.wait_stream(place.stream)


def _without_cached_weights(device: torch.device) -> torch.autocast:
    """Within, autocast casts a weight at each use: those in its cache are freed with it, which a graph would read."""
    kind = device.type
    return torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), cache_enabled=False)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Within, no garbage is collected: other graphs that are in it may not be destroyed while one is captured."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _captured(compute: Computation, given: Sequence[Tensor], pool: torch.cuda.MemPool) -> Computation | None:
    """The replay of `compute(*given)`, which is captured on the current stream, and not computed."""
    try:
        graph = torch.cuda.CUDAGraph()
        with _no_collection():
            graph.capture_begin(pool=pool.id, capture_error_mode="thread_local")  # type: ignore[arg-type]
            try:
                result = compute(*given)
            except BaseException:
                with suppress(RuntimeError):  # which would hide why
                    graph.capture_end()
                raise
            graph.capture_end()
    except RuntimeError as error:
        if is_out_of_memory(error):
            return None
        uncapturable.add(given[0].device)
        logger.warning(
            "nothing can be captured as a CUDA graph here, and small batches are slower without (%s). "
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
