"""Settings of the C allocator and of oneDNN's kernel cache for training on a CPU."""

from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4  # glibc's malloc.h: M_TRIM_THRESHOLD, ...
_LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep freed memory in this process, instead of returning it to the system.

    By default glibc maps new memory for each large tensor, and the page faults cost up to half of an update on a CPU.
    Peak memory stays the same; resident memory does not fall between peaks.

    Returns:
        Whether the C library supports this; only glibc does.
    """
    return _set((_TRIM_THRESHOLD, _LARGEST_INT), (_TOP_PAD, 2**26), (_MMAP_MAX, 0))


def return_freed_memory() -> bool:
    """Return freed blocks of 1 MiB and more to the system immediately; otherwise a sharded training's heap grows.

    Its weights are gathered into new memory for each layer, between tensors that persist.

    Returns:
        Whether the C library supports this; only glibc does.
    """
    return _set((_MMAP_THRESHOLD, 2**20))


def _set(*settings: tuple[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    taken = [mallopt is not None and mallopt(name, value) == 1 for name, value in settings]
    return all(taken)


def bound_kernel_cache() -> None:
    """Limit oneDNN's cache of compiled kernels to 64 entries, unless the environment sets its size.

    oneDNN compiles a kernel for each shape of a matrix product and caches 1,024 of them, each with its own buffers.
    Batches of sentences rarely repeat a shape, so a large cache only takes memory. Must be called before the first
    matrix product of the process.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
