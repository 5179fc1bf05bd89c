"""Recording and replay of decoding positions on a CPU: all kernels of a position in a single call.

A position of few rows costs more time in Python than in kernels. Its kernel calls are those of the previous position,
on the same memory, until caches grow; what changes between positions is written in place. Sentences may leave the
batch. Another batch of the same shapes differs only in the addresses of its decoder state: a recording that is no
longer in use is moved there. `JOINTNMT_GRAPHS=0` turns this off, as it does CUDA graphs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from jointnmt.ops.backend import graphs_enabled, implementation, kernels_read
from jointnmt.ops.cuda_graph import Computation
from jointnmt.ops.fusing import is_as_its_class
from jointnmt.ops.linear import MANY_ROWS
from jointnmt.ops.native import library
from jointnmt.ops.native.packed import PackedLinear
from jointnmt.ops.native.recording import Recording, active

ATTEMPTS = 2
"""Attempts to record. The first may include one-time work, such as packing weights."""
KEPT_BYTES = 2**25
"""Most bytes of recordings that are kept for later sentences, per model."""


def replays(x: Tensor) -> bool:
    """Whether computations on tensors like `x` may be recorded."""
    return (
        kernels_read(x)
        and x.numel() > 0
        and active() is None
        and not torch.autograd.profiler._is_profiler_enabled
        and graphs_enabled()
    )


@dataclass
class Recorded:
    """A recording, its input tensor and the runner that uses it."""

    recording: Recording
    given: Tensor
    user: weakref.ref[KernelRunner]

    @property
    def size(self) -> int:
        """Bytes of memory that the recording owns."""
        return self.recording.memory.size + self.given.nbytes


@dataclass
class _KnownPositions:
    """Recordings of a model's decoding positions, and what is known about them."""

    forwards: list[object]
    """The `forward` of each module's class, as they were recorded."""
    proven: dict[Hashable, Hashable] = field(default_factory=dict)
    """Kernels that a position was observed to consist of, and the weights that they read, for each kind of input."""
    recorded: dict[Hashable, Recorded] = field(default_factory=dict)
    """Recordings by what they depend on, the latest last."""
    weights: Hashable = None
    """Addresses and versions of the weights that the recordings read."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, on: Hashable, size: int, weights: Hashable, user: KernelRunner) -> Recorded | None:
        """A recording of at least `size` sentences that no other runner uses, or None."""
        with self.lock:
            if weights != self.weights:
                self.recorded.clear()
                self.weights = weights
            found = self.recorded.pop(on, None)
            if found is None or found.recording.most < size or found.user() not in (None, user):
                return None
            found.user = weakref.ref(user)
            self.recorded[on] = found
            return found

    def keep(self, on: Hashable, recorded: Recorded) -> None:
        """Keep a recording for reuse; drop the oldest beyond `KEPT_BYTES`."""
        with self.lock:
            self.recorded[on] = recorded
            total = sum(each.size for each in self.recorded.values())
            for oldest in list(self.recorded):
                if total <= KEPT_BYTES:
                    break
                total -= self.recorded.pop(oldest).size


_known: weakref.WeakKeyDictionary[nn.Module, _KnownPositions] = weakref.WeakKeyDictionary()


class KernelRunner:
    """Runs a computation, and replays it while its shapes and addresses stay the same.

    PyTorch's own operations are not recorded: a computation that does not consist of kernels alone is run as usual.
    Detecting such operations takes time, so it is done once for each model: if later the same kernels are called on
    each other's results, the same weights and the inputs, there can be nothing else between them. While a module has
    hooks or a `forward` of its own, nothing is recorded; another `forward` of a class makes it another model.
    """

    def __init__(self) -> None:
        self._addresses: Hashable = None
        self._recorded: Recorded | None = None
        self.obstacles: list[str] = []
        """Reasons why recordings could not be replayed."""

    def run(self, model: nn.Module, compute: Computation, x: Tensor, memory: Sequence[Tensor]) -> Tensor:
        """`compute(x)`, without gradient.

        Args:
            model: owner of the weights that `compute` reads. For one model and memory of the same shapes but for the
                number of sentences, `compute` must always be the same.
            compute: reads and writes tensors in place, and does nothing else that a replay would have to repeat.
            x: input; sentences are its first axis, and there may be fewer than before.
            memory: tensors that `compute` reads or writes besides `x` and the weights. Only the size of their first
                axis may change, together with that of `x`.
        """
        if len(self.obstacles) == ATTEMPTS:
            return compute(x)
        size, addresses = len(x), _addresses(x, memory)
        if self._recorded is None or size > self._recorded.recording.most or addresses != self._addresses:
            modules = list(model.modules())
            if _has_any_global_hook() or not all(map(is_as_its_class, modules)):
                return compute(x)
            forwards: list[object] = [type(module).forward for module in modules]
            known = _known.get(model)
            if known is None or known.forwards != forwards:
                known = _known[model] = _KnownPositions(forwards)
            on = None if _has_many_rows(x) else _dependencies(x, memory)  # for many rows, Python's time is negligible
            self._recorded = None if on is None else known.take(on, size, _weights(modules), self)
            if self._recorded is None:
                return self._record(known, on, compute, x, memory)
            self._recorded.recording.move(memory)
            self._addresses = addresses
        self._recorded.given[:size].copy_(x)
        kernels = library()
        assert kernels is not None
        return self._recorded.recording.replay(kernels, size)

    def ready(self, size: int, rows: int, memory: Sequence[Tensor]) -> Recorded | None:
        """The recording that `run` would replay for `size` sentences of `rows` rows each, or None."""
        recorded = self._recorded
        if recorded is None or size > recorded.recording.most or rows != recorded.given.shape[1]:
            return None
        return recorded if _addresses(recorded.given, memory) == self._addresses else None

    def _record(
        self, known: _KnownPositions, on: Hashable | None, compute: Computation, x: Tensor, memory: Sequence[Tensor]
    ) -> Tensor:
        recording, given = Recording(len(x)), x.clone()
        # Layouts differ only where an axis has one element, or where PyTorch's products are faster for many rows.
        kind = x.dtype, tuple(min(size, 2) for size in x.shape), _has_many_rows(x), implementation()
        with recording.recorded(watched=kind not in known.proven):
            result = compute(given)
        weights = recording.read.difference([given.data_ptr()], (each.data_ptr() for each in memory))
        found = tuple(recording.kernels), frozenset(weights)
        if recording.obstacle is None and known.proven.setdefault(kind, found) != found:
            recording.obstacle = "other kernels or tensors than before"
            known.proven.pop(kind, None)  # another thread may have removed it
        recording.returns(result)
        if recording.obstacle is not None:
            self.obstacles.append(recording.obstacle)
            return result.clone()
        recording.belongs_to(memory)
        self._recorded, self._addresses = Recorded(recording, given, weakref.ref(self)), _addresses(x, memory)
        if on is not None:
            known.keep(on, self._recorded)
        return result.clone()


def _has_many_rows(x: Tensor) -> bool:
    return x.numel() // x.shape[-1] >= MANY_ROWS


def _addresses(x: Tensor, memory: Sequence[Tensor]) -> Hashable:
    """Key of a recording moved to this memory: it can be replayed while this stays the same."""
    return torch.get_num_threads(), x.dtype, x.shape[1:], *[each.data_ptr() for each in memory]


def _dependencies(x: Tensor, memory: Sequence[Tensor]) -> Hashable:
    """Key of a recording in the cache: all it depends on but the number of sentences and the memory's addresses."""
    shapes = [(each.dtype, each.shape[1:], each.stride()) for each in memory]
    return torch.get_num_threads(), implementation(), x.dtype, x.shape[1:], *shapes


def _weights(modules: Sequence[nn.Module]) -> Hashable:
    """Addresses of the weights of a model's modules, and how often they were changed in place.

    An address that a recording reads is not reused for another tensor: recordings keep their arguments and packed
    weights alive. They do not keep a norm's weights, but read what is stored there.
    """
    tensors: list[Tensor | None] = []
    for module in modules:  # not `parameters()`: building all names takes as long as a position
        tensors += [*module._parameters.values(), *module._buffers.values()]
        if isinstance(module, PackedLinear):
            tensors += module.arranged
    return tuple(
        (each.data_ptr(), None if each.is_inference() else each._version) for each in tensors if each is not None
    )
