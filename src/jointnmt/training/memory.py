"""Batches that do not fit in memory: recognised here, and computed in smaller parts."""

from __future__ import annotations

import torch

_CPU_MESSAGES = ("can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device, or the CPU's allocator, had no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _CPU_MESSAGES)


def release_memory() -> None:
    """Give cached but unused device memory back, so that smaller parts find unbroken room."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
