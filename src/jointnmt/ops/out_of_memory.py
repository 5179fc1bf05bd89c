"""Out-of-memory errors: recognising them, and computing a batch in smaller parts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from jointnmt.ops.native.allocator import allocator

Item = TypeVar("Item")
Result = TypeVar("Result")

_MESSAGES = (
    "can't allocate memory",
    "not enough memory",
    "could not create a primitive",  # oneDNN's message
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",  # the driver's own
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a device, or the CPU's allocator, ran out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def release_memory() -> None:
    """Free cached but unused memory, so that smaller batches find contiguous blocks."""
    allocator.empty_cache()
    _trim_heap()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _trim_heap() -> None:
    """Return unused pages of the C heap to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def in_parts(
    items: Sequence[Item], compute: Callable[[Sequence[Item]], list[Result]], too_large: Callable[[Item], Exception]
) -> list[Result]:
    """Compute all items at once or, if they do not fit in memory, the two halves one after the other.

    Raises:
        Exception: `too_large(item)` for an item that does not fit by itself.
    """
    try:
        return compute(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    release_memory()  # outside the handler: the traceback keeps the tensors computed so far alive
    if len(items) == 1:
        raise too_large(items[0])
    middle = len(items) // 2
    return in_parts(items[:middle], compute, too_large) + in_parts(items[middle:], compute, too_large)
