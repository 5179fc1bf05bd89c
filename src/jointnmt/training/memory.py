"""Batches that do not fit in memory: recognised here, and computed in smaller parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from jointnmt import ops
from jointnmt.training.allocator import give_freed_memory_back

Item = TypeVar("Item")
Result = TypeVar("Result")

_MESSAGES = (
    "can't allocate memory",
    "not enough memory",
    "could not create a primitive",  # what oneDNN says
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device, or the CPU's allocator, had no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def release_memory() -> None:
    """Give cached but unused memory back, so that smaller parts find unbroken room."""
    ops.empty_cache()
    give_freed_memory_back()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def in_parts(
    items: Sequence[Item], compute: Callable[[Sequence[Item]], list[Result]], too_large: Callable[[Item], Exception]
) -> list[Result]:
    """Compute on all items at once or, where that does not fit in memory, on one half after the other.

    Raises:
        Exception: what `too_large` makes of an item that does not fit all by itself.
    """
    try:
        return compute(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    release_memory()  # outside of the handler, which keeps what was computed so far alive
    if len(items) == 1:
        raise too_large(items[0])
    middle = len(items) // 2
    return in_parts(items[:middle], compute, too_large) + in_parts(items[middle:], compute, too_large)
