"""Calls of kernels, recorded while they are made and replayed in one call.

Between two kernels of a decoding position, Python spends more time than a kernel does on a few rows. The calls of a
position are those of the one before: they are made once from Python, and then by `replay`. Those of another sentence of
the same length differ in the memory of its decoder state only: a recording can be `moved` there.
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
"""Operations of PyTorch beside views that compute nothing."""
ALIGNMENT = 64
CHUNK = 2**18
"""Bytes that are taken at once, for results that are smaller."""


class _MemoryPart(NamedTuple):
    """Memory of a size, somewhere in a chunk."""

    address: int
    size: int
    chunk: Tensor


class Memory:
    """Memory for the results of recorded kernels, which a later kernel may reuse, but nothing else may."""

    def __init__(self) -> None:
        self._free: dict[int, list[_MemoryPart]] = defaultdict(list)  # by size
        self._chunks: list[tuple[int, int]] = []  # where each begins and ends
        self._rest = 0, 0, torch.empty(0)  # the part of the last chunk that was never taken
        self._in_use: dict[int, Lease] = {}  # by address
        self._returned: deque[Lease] = deque()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor, whose memory is free again when the last tensor over it is gone."""
        count = math.prod(shape)
        size = max(1, -(-count * dtype.itemsize // ALIGNMENT)) * ALIGNMENT
        while self._returned:
            freed: _MemoryPart = self._returned.popleft().block
            del self._in_use[freed.address]
            self._free[freed.size].append(freed)
        free = self._free[size]
        part = free.pop() if free else self._take(size)
        array = (ctypes.c_ubyte * size).from_address(part.address)
        array.owner = part.chunk  # type: ignore[attr-defined]  # kept by tensors over it, whatever becomes of this
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
        """Bytes that were taken."""
        return sum(end - begin for begin, end in self._chunks)

    def owns(self, address: int) -> bool:
        """Whether this memory has the address."""
        for begin, end in self._chunks:  # noqa: SIM110  # `any` would take longer
            if begin <= address < end:
                return True
        return False


class Recording:
    """The kernels that are called in a context, `with recording.recorded():`.

    Results of kernels lie in memory of its own, which is theirs in each replay. What PyTorch computes in between is not
    repeated: then the recording is of no use, and says so.

    It serves every number of sentences up to the `size` that it is made with. Sentences are the first axis of all
    tensors, so that those of fewer ones lie at their beginning; and of all that a kernel is told, only what comes first
    depends on their number: how many rows, cells or lines it computes, as a number or as the first field of a
    structure.
    """

    def __init__(self, size: int) -> None:
        self.memory = Memory()
        self.obstacle: str | None = None
        """Why it cannot be replayed."""
        self.kernels: list[int] = []
        """The addresses of what is called, one after the other."""
        self.read: set[int] = set()
        """The addresses of tensors that it is called with, but for results of kernels."""
        self.most = self._size = size
        """Sentences that it serves."""
        self._arguments = array("q")
        self._begins: list[int] = []
        """Where those of each call begin."""
        self._told: list[Any] = []
        """Where each kernel is told how much it computes: in a structure, with its offset there, or at this place among
        the arguments."""
        self._shares: list[tuple[ctypes.c_int64, int]] = []
        """What it is told, and the share of one sentence."""
        self._pointers: list[Any] = []
        """Likewise where each address is."""
        self._moving: list[tuple[ctypes.c_int64, int, int]] = []
        """The addresses in a decoder state: where each is, in which tensor it lies, and at which offset."""
        self._result = torch.empty(0, device="cpu")
        self._to_result: list[tuple[ctypes.c_int64, int]] = []
        """The addresses in the memory of the result, with their offsets there."""
        self._kept: list[Any] = []
        self._program = array("q")

    @contextmanager
    def recorded(self, watched: bool = True) -> Iterator[None]:
        """Record the calls of this thread; if it is not `watched`, what PyTorch computes goes unnoticed."""
        before, _active.recording = _active.recording, self
        try:
            with _Watch(self) if watched else nullcontext():
                yield
        finally:
            _active.recording = before
        first, width = self._arguments.buffer_info()[0], self._arguments.itemsize
        for kernel, begin in zip(self.kernels, self._begins, strict=True):
            self._program.extend((kernel, first + width * begin))
        for told in self._told:
            count = self._number_at(told)
            self._shares.append((count, count.value // self._size))
            if count.value % self._size:
                self.obstacle = self.obstacle or "a kernel that does not compute the same for each sentence"

    def belongs_to(self, memory: Sequence[Tensor]) -> None:
        """Say which tensors of a decoder state it was made with: they are not kept, and others can take their place."""
        ranges = [_range_of(each) for each in memory]

        def owner(address: int) -> int | None:
            return next((number for number, range_ in enumerate(ranges) if address in range_), None)

        for pointer in map(self._number_at, self._pointers):
            if (number := owner(pointer.value)) is not None:
                self._moving.append((pointer, number, pointer.value - ranges[number].start))
        self._kept = [each for each in self._kept if not isinstance(each, Tensor) or owner(each.data_ptr()) is None]

    def returns(self, result: Tensor) -> None:
        """Say what its result is: each replay writes one into memory of its own."""
        own = _range_of(torch.empty(0, dtype=torch.uint8, device="cpu").set_(result.untyped_storage()))
        pointers = [pointer for pointer in map(self._number_at, self._pointers) if pointer.value in own]
        self._result, self._to_result = result, [(pointer, pointer.value - own.start) for pointer in pointers]
        if not pointers or not self.memory.owns(own.start):
            self.obstacle = self.obstacle or "a result that no kernel computes"

    def move(self, memory: Sequence[Tensor]) -> None:
        """Read and write these tensors from now on, in place of those that it `belongs_to`, of the same shapes."""
        begins = [each.data_ptr() for each in memory]
        for pointer, number, offset in self._moving:
            pointer.value = begins[number] + offset

    def add(self, kernel: Any, arguments: tuple[Any, ...], threads: int) -> None:
        """Record a call of a kernel, which is None if it cannot be replayed."""
        if kernel is None:
            self.obstacle = self.obstacle or "a kernel that is not made to be replayed"
            return
        self.kernels.append(_address(kernel))
        begin = len(self._arguments)
        self._begins.append(begin)
        self._told.append(begin if isinstance(arguments[0], int) else (arguments[0]._obj, 0))
        for place, argument in enumerate(arguments, begin):
            if isinstance(argument, Tensor | ctypes.c_void_p):
                self._pointers.append(place)
            elif hasattr(argument, "_obj"):  # of ctypes.byref
                kind: Any = type(argument._obj)
                self._pointers.extend((argument._obj, offset) for offset in _pointers_in(kind))
        self._arguments.extend(map(self._number, arguments))
        self._arguments.append(threads)

    def replay(self, library: ctypes.CDLL, size: int) -> Tensor:
        """Make the calls again for the first `size` sentences; returns what it `returns`.

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
        """Where the kernels' calls lie, one after the other."""
        return self._program.buffer_info()[0]

    def aimed(self, size: int, memory: Tensor | None = None) -> Tensor:
        """Let replays be of the first `size` sentences, and write what they return to this memory; returns that.

        Without `memory` it is the recording's own: the next that are aimed so write to it.

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
            raise ValueError(f"{size} sentences, of a recording of {self.most}")
        self._size = size
        for count, share in self._shares:
            count.value = share * size

    def _number_at(self, where: Any) -> ctypes.c_int64:
        """The number in a structure at an offset, or among the arguments."""
        if isinstance(where, int):
            return ctypes.c_int64.from_buffer(self._arguments, self._arguments.itemsize * where)
        return ctypes.c_int64.from_buffer(*where)

    def _number(self, argument: Any) -> int:
        """An argument as 64 bits; what it points to is kept, but for results of kernels, whose memory is reused."""
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
    """Notes what PyTorch computes."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be kept from torch.compile, which would be imported for that, in seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not getattr(func, "is_view", False) and func.name() not in ALLOCATING:
            self._recording.obstacle = self._recording.obstacle or func.name()
        return func(*args, **(kwargs or {}))


class _Active(threading.local):
    recording: Recording | None = None


_active = _Active()


def active() -> Recording | None:
    """The recording of this thread, if one is made."""
    return _active.recording


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for the result of a kernel: of the recording, if one is made, or of the caching allocator."""
    recording = _active.recording
    return (allocator if recording is None else recording.memory).empty(shape, dtype)


def _range_of(memory: Tensor) -> range:
    """The addresses of its bytes."""
    return range(memory.data_ptr(), memory.data_ptr() + memory.nbytes)


@functools.cache
def _pointers_in(structure: type[ctypes.Structure]) -> list[int]:
    """The offsets of all pointers in a structure, also in those that it consists of."""
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
