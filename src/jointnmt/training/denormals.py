"""Denormal numbers on a CPU: flushed to zero during training.

Below the smallest normal number of float32, 1.2e-38, many processors compute in microcode, many times as slowly, and a
matrix product waits for each such number. Most trainings have few. One with non-lexical feature fusion had many after
some thousand updates, and ran at a third of its speed from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

DENORMAL = 1e-39
"""A denormal number of float32."""


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """A context in which this thread, and those that it starts, flush denormals to zero if the processor can.

    Threads keep this mode as long as they live, also PyTorch's own, if they are started in the context.
    """
    already = are_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


def are_zero() -> bool:
    """Whether this thread currently flushes denormals to zero."""
    return not torch.tensor(DENORMAL).mul(1.0).item()
