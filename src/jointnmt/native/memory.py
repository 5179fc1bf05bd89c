"""Memory of large tensors, lent again and again.

Batches of sentences have ever new shapes. Under them the C library's heap falls to pieces: it grows, searching it takes
time, and pages never touched before cost the system, which fills them with zeros, several times what is computed on
them. Here freed memory serves whatever fits into it, and comes in huge pages where the system has them.
"""

from __future__ import annotations

import math
import mmap
import threading
from bisect import bisect_left, insort
from collections import deque

import numpy as np
import torch
from torch import Tensor

SMALLEST = 2**18
"""Bytes of what is lent; anything smaller is left to the C library."""
WASTE = 3
"""How many times larger than what is asked for a block may be."""
SURPLUS = 1.5
"""How many times as much as was ever lent at once is held, lent or not, before free blocks are given up for others."""


class Pool:
    """Blocks of memory for tensors of the CPU. Threads may share it."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []  # by size
        self._returned: deque[mmap.mmap] = deque()  # a block comes back at any time, also while another is taken
        self._lock = threading.Lock()
        self.held_bytes = self.most_lent_bytes = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor, its values whatever its memory held before. Its memory comes back when it is freed."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALLEST:
            return torch.empty(shape, dtype=dtype, device="cpu")
        storage = torch.from_numpy(_Lent.of(self._take(size), size, self._returned)).untyped_storage()
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape)  # type: ignore[call-overload]

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            while self._returned:
                insort(self._free, self._returned.popleft(), key=len)
            at = bisect_left(self._free, size, key=len)
            fits = at < len(self._free) and len(self._free[at]) <= WASTE * size
            block = self._free.pop(at) if fits else self._make(size)
            self.most_lent_bytes = max(self.most_lent_bytes, self.held_bytes - sum(map(len, self._free)))
            return block

    def _make(self, size: int) -> mmap.mmap:
        step = max(1 << size.bit_length() - 4, mmap.PAGESIZE)
        size = -(-size // step) * step  # rounded up by an eighth at most, so that sizes come again
        while self._free and self.held_bytes + size > SURPLUS * self.most_lent_bytes:
            self.held_bytes -= len(self._free.pop(0))
        block = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        self.held_bytes += size
        return block


class _Lent(np.ndarray):
    """The first bytes of a block, which goes home when the last tensor over them is gone."""

    block: mmap.mmap
    home: deque[mmap.mmap]

    @classmethod
    def of(cls, block: mmap.mmap, size: int, home: deque[mmap.mmap]) -> _Lent:
        lent = np.frombuffer(block, dtype=np.uint8, count=size).view(cls)
        lent.block, lent.home = block, home
        return lent

    def __del__(self) -> None:
        if "block" in self.__dict__:  # else a part of the array, or a copy
            self.home.append(self.block)


pool = Pool()
