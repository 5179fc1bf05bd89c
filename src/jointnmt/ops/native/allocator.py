"""A caching allocator for large tensors on the CPU.

Batches of sentences keep changing shape, which fragments the C library's heap: it grows, searching it takes time, and
page faults of fresh memory cost several times the computation on it. Here memory is reserved in large arenas, of huge
pages where the system has them; tensors are blocks of arenas, and free neighbours are merged.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

SMALLEST = 2**18
"""Bytes of the smallest block; anything smaller is left to the C library."""
ARENA = 2**26
"""Bytes of the smallest arena."""
GROWTH = 8
"""A new arena is at least the reserved memory divided by this."""
HUGE_PAGE = 2**21
PRIVATE = hasattr(mmap, "MAP_PRIVATE")


@dataclass(slots=True, eq=False)
class Block:
    """A part of an arena, allocated or free."""

    arena: mmap.mmap
    number: int
    """Number of the arena."""
    start: int
    size: int
    before: Self | None = None
    after: Self | None = None
    free: bool = False
    in_use: Lease | None = None

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key of free blocks: size, then position."""
        return self.size, self.number, self.start


class Lease(weakref.ref[memoryview]):
    """Memory in use by tensors; `callback` is called with the lease when the last of them is freed.

    The callback has to be a C function, in which no signal handler runs: Python discards exceptions raised in a
    callback, such as those of a handler.
    """

    __slots__ = ("block",)
    block: Any
    """The block that the memory belongs to."""

    @classmethod
    def of(cls, memory: memoryview, callback: Callable[[Any], object], block: object) -> Self:
        """A lease of `memory`, which belongs to `block`."""
        lease = cls(memory, callback)
        lease.block = block
        return lease


class CachingAllocator:
    """Allocates memory for CPU tensors and reuses it when they are freed. Thread-safe."""

    def __init__(self) -> None:
        self._free: list[Block] = []  # by rank; no two of them side by side
        self._returned: deque[Lease] = deque()  # blocks return at any time, even while another is taken
        self._lock = threading.Lock()
        self._arenas = 0
        self.reserved_bytes = self.allocated_bytes = self.peak_allocated_bytes = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A contiguous, uninitialised tensor, whose memory is reused after it is freed.

        Raises:
            MemoryError: if there is no memory left.
        """
        size = math.prod(shape) * dtype.itemsize
        if size < SMALLEST:
            return torch.empty(shape, dtype=dtype, device="cpu")
        block = self._take(size)
        memory = memoryview(block.arena)[block.start : block.start + size]
        block.in_use = Lease.of(memory, self._returned.append, block)  # kept alive by the tensors over it
        storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape)  # type: ignore[call-overload]

    def _take(self, size: int) -> Block:
        size = _rounded(size, mmap.PAGESIZE)
        with self._lock:
            for lease in reversed(list(self._returned)):  # the last one may still be in the cache
                if size <= lease.block.size < size + SMALLEST:
                    self._returned.remove(lease)
                    return lease.block
            self._sort_in()
            at = bisect_left(self._free, (size, 0, 0), key=lambda block: block.rank)
            block = self._free.pop(at) if at < len(self._free) else self._new_arena(size)
            block.free = False
            if block.size - size >= SMALLEST:
                self._cut(block, size)
            self.allocated_bytes += block.size
            self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
            return block

    def empty_cache(self) -> None:
        """Return unused arenas to the system."""
        with self._lock:
            self._sort_in()
            for block in self._unused():
                self._give_up(block)

    def _sort_in(self) -> None:
        while self._returned:
            block = self._returned.popleft().block
            block.in_use = None  # breaks the reference cycle
            self._put_back(block)

    def _unused(self) -> list[Block]:
        """Free blocks that are whole arenas."""
        return [block for block in self._free if block.before is None and block.after is None]

    def _give_up(self, block: Block) -> None:
        self._remove(block)
        self.reserved_bytes -= block.size

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.arena, block.number, block.start + size, block.size - size, block, block.after, free=True)
        if rest.after is not None:
            rest.after.before = rest
        block.size, block.after = size, rest
        insort(self._free, rest, key=lambda each: each.rank)

    def _put_back(self, block: Block) -> None:
        self.allocated_bytes -= block.size
        first, last = block, block
        if block.before is not None and block.before.free:
            self._remove(first := block.before)
        if block.after is not None and block.after.free:
            self._remove(last := block.after)
        first.size, first.after, first.free = last.start + last.size - first.start, last.after, True
        if first.after is not None:
            first.after.before = first
        insort(self._free, first, key=lambda each: each.rank)

    def _remove(self, block: Block) -> None:
        del self._free[bisect_left(self._free, block.rank, key=lambda each: each.rank)]

    def _new_arena(self, least: int) -> Block:
        """A block that is a new arena, in exchange for free arenas, which are all too small."""
        size = _rounded(max(least, ARENA, self.reserved_bytes // GROWTH), HUGE_PAGE)
        given_up = 0
        for block in self._unused():
            if given_up < size:
                self._give_up(block)
                given_up += block.size
        try:
            arena = _arena(size)
        except MemoryError:
            arena = _arena(size := _rounded(least, HUGE_PAGE))
        self.reserved_bytes += size
        self._arenas += 1
        return Block(arena, self._arenas, 0, size)


def _arena(size: int) -> mmap.mmap:
    """Memory from the system.

    Raises:
        MemoryError: if there is no memory left.
    """
    try:
        # Private: what a forked process writes into its copy stays its own.
        arena = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if PRIVATE else mmap.mmap(-1, size)
    except OSError as error:
        raise MemoryError(f"the system cannot provide {size:,} bytes of memory") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # not on this system
            arena.madvise(mmap.MADV_HUGEPAGE)
    return arena


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step


allocator = CachingAllocator()
