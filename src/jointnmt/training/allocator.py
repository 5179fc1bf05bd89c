"""Memory on a CPU: what a training frees is kept for the next batch, and what it will not need again is not."""

from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # glibc's malloc.h: M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX
_LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process keep freed memory, instead of giving it back and having its pages filled with zeros anew.

    By default glibc maps each large tensor afresh, and on a CPU the page faults of that cost up to half of a training
    step. Peak memory stays what it is; what the process holds does not fall between peaks.

    Returns:
        Whether the C library could be told: only glibc can.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_TRIM_THRESHOLD, _LARGEST_INT), (_TOP_PAD, 2**26), (_MMAP_MAX, 0))
    taken = [mallopt(name, value) == 1 for name, value in settings]
    return all(taken)


def give_freed_memory_back() -> None:
    """Give what is kept, and unused, back to the system, once, if the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def bound_kernel_cache() -> None:
    """Let oneDNN keep fewer compiled kernels, unless the environment says how many.

    It compiles a kernel for every shape of a matrix product and keeps 1,024 of them, each with buffers of its own.
    Batches of sentences hardly repeat their shapes, so that these would only fill memory. Takes effect
    before the first product of a process.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
