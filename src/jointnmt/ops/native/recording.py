"""Calls of kernels, recorded while they are made and replayed in one call.

For few rows, Python spends more time between two kernels of a decoding position than a kernel takes. The calls of a
position are those of the previous one: they are made once from Python, and then by `replay`. Those of another sentence
of the same length differ only in the memory of its decoder state: `move` adapts a recording to it.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import threading
from array import array
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from jointnmt.ops.native.allocator import Lease, allocator

ALLOCATING = {"aten::empty.memory_format", "aten::set_.source_Storage_storage_offset"}
"""PyTorch operations, besides views, that compute nothing."""
ALIGNMENT = 64
CHUNK = 2**18
"""Bytes taken at once, for several smaller results."""


class _MemoryPart(NamedTuple):
    """A part of a chunk, for one result."""

    address: int
    size: int
    chunk: Tensor


class Memory:
    """Memory for the results of recorded kernels, reused only by later kernels of the recording."""

    def __init__(self) -> None:
        self._free: dict[int, list[_MemoryPart]] = defaultdict(list)  # by size
        self._chunks: list[tuple[int, int]] = []  # begin and end of each
        self._rest = 0, 0, torch.empty(0)  # the part of the last chunk that was never taken
        self._in_use: dict[int, Lease] = {}  # by address
        self._returned: deque[Lease] = deque()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor, whose memory is reused when the last tensor over it is freed."""
        count = math.prod(shape)
        size = max(1, -(-count * dtype.itemsize // ALIGNMENT)) * ALIGNMENT
        while self._returned:
            freed: _MemoryPart = self._returned.popleft().block
            del self._in_use[freed.address]
            self._free[freed.size].append(freed)
        free = self._free[size]
        part = free.pop() if free else self._take(size)
        array = (ctypes.c_ubyte * size).from_address(part.address)
        array.owner = part.chunk  # type: ignore[attr-defined]  # kept alive by the tensors over it
        memory = memoryview(array)
        self._in_use[part.address] = Lease.of(memory, self._returned.append, part)
        return torch.frombuffer(memory, dtype=dtype)[:count].view(shape)

    def _take(self, size: int) -> _MemoryPart:
        begin, end, chunk = self._rest
        if end - begin < size:
            chunk = allocator.empty((max(size, CHUNK) + ALIGNMENT,), torch.uint8)
            begin = -(-chunk.data_ptr() // ALIGNMENT) * ALIGNMENT
            end = chunk.data_ptr() + chunk.numel()
            self._chunks.append((begin, end))
        self._rest = begin + size, end, chunk
        return _MemoryPart(begin, size, chunk)

    @property
    def size(self) -> int:
        """Bytes taken from the allocator."""
        return sum(end - begin for begin, end in self._chunks)

    def owns(self, address: int) -> bool:
        """Whether the address is in this memory."""
        for begin, end in self._chunks:  # noqa: SIM110  # `any` would take longer
            if begin <= address < end:
                return True
        return False


class Recording:
    """The kernels called in the context `with recording.recorded():`.

    Results of kernels are stored in the recording's own memory, at the same addresses in each replay. Computations of
    PyTorch in between are not repeated: they make the recording unusable, which is stated in `obstacle`.

    It can be replayed for any number of sentences up to the `size` that it is recorded with. Sentences are the first
    axis of all tensors, so fewer of them are at the beginning; and only the first argument of a kernel depends on their
    number: how many rows, cells or lines it computes, as a number or as the first field of a structure.
    """

    def __init__(self, size: int) -> None:
        self.memory = Memory()
        self.obstacle: str | None = None
        """Why it cannot be replayed; None if it can."""
        self.kernels: list[int] = []
        """Addresses of the kernels, in the order of their calls."""
        self.read: set[int] = set()
        """Addresses of the tensors among the arguments, except results of recorded kernels."""
        self.most = self._size = size
        """Largest number of sentences to replay for."""
        self._arguments = array("q")
        self._begins: list[int] = []
        """Index of the first argument of each call."""
        self._counts: list[Any] = []
        """Location of each kernel's count of rows, cells or lines: a structure and an offset in it, or an index among
        the arguments."""
        self._shares: list[tuple[ctypes.c_int64, int]] = []
        """Each count, and the part of it that one sentence adds."""
        self._pointers: list[Any] = []
        """Location of each address, in the same form as `_counts`."""
        self._moving: list[tuple[ctypes.c_int64, int, int]] = []
        """Pointers into a decoder state: the stored address, the number of its tensor and the offset in that."""
        self._result = torch.empty(0, device="cpu")
        self._to_result: list[tuple[ctypes.c_int64, int]] = []
        """Pointers into the memory of the result, and their offsets in it."""
        self._kept: list[Any] = []
        self._program = array("q")

    @contextmanager
    def recorded(self, watched: bool = True) -> Iterator[None]:
        """Record the calls of this thread; computations of PyTorch are detected only if it is `watched`."""
        before, _active.recording = _active.recording, self
        try:
            with _Watch(self) if watched else nullcontext():
                yield
        finally:
            _active.recording = before
        first, width = self._arguments.buffer_info()[0], self._arguments.itemsize
        for kernel, begin in zip(self.kernels, self._begins, strict=True):
            self._program.extend((kernel, first + width * begin))
        for location in self._counts:
            count = self._number_at(location)
            self._shares.append((count, count.value // self._size))
            if count.value % self._size:
                self.obstacle = self.obstacle or "a kernel whose work is not the same for each sentence"

    def belongs_to(self, memory: Sequence[Tensor]) -> None:
        """Declare the tensors of the decoder state that it was recorded with: they are not kept, and replaceable."""
        ranges = [_range_of(each) for each in memory]

        def owner(address: int) -> int | None:
            return next((number for number, range_ in enumerate(ranges) if address in range_), None)

        for pointer in map(self._number_at, self._pointers):
            if (number := owner(pointer.value)) is not None:
                self._moving.append((pointer, number, pointer.value - ranges[number].start))
        self._kept = [each for each in self._kept if not isinstance(each, Tensor) or owner(each.data_ptr()) is None]

    def returns(self, result: Tensor) -> None:
        """Declare the result; each replay writes it to newly allocated memory."""
        own = _range_of(torch.empty(0, dtype=torch.uint8, device="cpu").set_(result.untyped_storage()))
        pointers = [pointer for pointer in map(self._number_at, self._pointers) if pointer.value in own]
        self._result, self._to_result = result, [(pointer, pointer.value - own.start) for pointer in pointers]
        if not pointers or not self.memory.owns(own.start):
            self.obstacle = self.obstacle or "a result that is not computed by a kernel"

    def move(self, memory: Sequence[Tensor]) -> None:
        """Make replays read and write these tensors instead of those that it `belongs_to`, of the same shapes."""
        begins = [each.data_ptr() for each in memory]
        for pointer, number, offset in self._moving:
            pointer.value = begins[number] + offset

    def add(self, kernel: Any, arguments: tuple[Any, ...], threads: int) -> None:
        """Record a call of a kernel; None stands for one that cannot be replayed."""
        if kernel is None:
            self.obstacle = self.obstacle or "a kernel that does not support replay"
            return
        self.kernels.append(_address(kernel))
        begin = len(self._arguments)
        self._begins.append(begin)
        self._counts.append(begin if isinstance(arguments[0], int) else (arguments[0]._obj, 0))
        for place, argument in enumerate(arguments, begin):
            if isinstance(argument, Tensor | ctypes.c_void_p):
                self._pointers.append(place)
            elif hasattr(argument, "_obj"):  # of ctypes.byref
                kind: Any = type(argument._obj)
                self._pointers.extend((argument._obj, offset) for offset in _pointers_in(kind))
        self._arguments.extend(map(self._number, arguments))
        self._arguments.append(threads)

    def replay(self, library: ctypes.CDLL, size: int) -> Tensor:
        """Repeat the calls for the first `size` sentences, and return the result.

        Raises:
            MemoryError: if there is no memory left.
            ValueError: if it was recorded for fewer sentences.
        """
        stored = self._result.untyped_storage().nbytes() // self._result.itemsize
        result = self.aimed(size, allocator.empty((stored * size // self.most,), self._result.dtype))
        if library.replay(ctypes.c_void_p(self.program), ctypes.c_long(len(self.kernels))):
            raise MemoryError("no memory left for a decoding position")
        return result

    @property
    def program(self) -> int:
        """Address of the array of recorded calls."""
        return self._program.buffer_info()[0]

    def aimed(self, size: int, memory: Tensor | None = None) -> Tensor:
        """Set up replays for the first `size` sentences, with the result in `memory`; return the result's tensor.

        Without `memory`, the result is in the recording's own memory, and overwritten by later such replays.

        Raises:
            ValueError: if it was recorded for fewer sentences.
        """
        if size != self._size:
            self._resize(size)
        if memory is None:
            begin, result = self._result.untyped_storage().data_ptr(), self._result[:size]
        else:
            begin, result = memory.data_ptr(), memory.as_strided((size, *self._result.shape[1:]), self._result.stride())
        for pointer, offset in self._to_result:
            pointer.value = begin + offset
        return result

    def _resize(self, size: int) -> None:
        if size > self.most:
            raise ValueError(f"cannot replay {size} sentences: the recording is for {self.most} at most")
        self._size = size
        for count, share in self._shares:
            count.value = share * size

    def _number_at(self, where: Any) -> ctypes.c_int64:
        """The 64-bit number at an offset in a structure, or at an index among the arguments."""
        if isinstance(where, int):
            return ctypes.c_int64.from_buffer(self._arguments, self._arguments.itemsize * where)
        return ctypes.c_int64.from_buffer(*where)

    def _number(self, argument: Any) -> int:
        """An argument as 64 bits; its data is kept alive, except results of kernels, whose memory is reused."""
        if argument is None or isinstance(argument, int):
            return argument or 0
        if isinstance(argument, Tensor):
            address = argument.data_ptr()
            if not self.memory.owns(address):
                self._kept.append(argument)
                self.read.add(address)
            return address
        if isinstance(argument, float):
            return int(struct.unpack("q", struct.pack("d", argument))[0])
        if isinstance(argument, ctypes.c_void_p):
            return argument.value or 0
        self._kept.append(argument._obj)  # of ctypes.byref
        return ctypes.addressof(argument._obj)


class _Watch(TorchDispatchMode):
    """Detects computations of PyTorch, which are an obstacle to replay."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: to skip the mode, PyTorch would import torch.compile, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not getattr(func, "is_view", False) and func.name() not in ALLOCATING:
            self._recording.obstacle = self._recording.obstacle or func.name()
        return func(*args, **(kwargs or {}))


class _Active(threading.local):
    recording: Recording | None = None


_active = _Active()


def active() -> Recording | None:
    """The recording in progress in this thread, or None."""
    return _active.recording


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for a kernel's result: from the recording in progress, or else from the caching allocator."""
    recording = _active.recording
    return (allocator if recording is None else recording.memory).empty(shape, dtype)


def _range_of(memory: Tensor) -> range:
    """Addresses of a tensor's bytes."""
    return range(memory.data_ptr(), memory.data_ptr() + memory.nbytes)


@functools.cache
def _pointers_in(structure: type[ctypes.Structure]) -> list[int]:
    """Offsets of all pointers in a structure, including nested structures."""
    found = []
    for name, kind, *_ in structure._fields_:
        offset = getattr(structure, name).offset
        if kind is ctypes.c_void_p:
            found.append(offset)
        elif issubclass(kind, ctypes.Structure):
            found += [offset + inner for inner in _pointers_in(kind)]
    return found


def _address(function: Any) -> int:
    return ctypes.c_void_p.from_buffer(function).value or 0
