"""Mixed precision: casts to the autocast type, and regions that keep the type of their input."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def autocast_to(precision: str, device: torch.device) -> torch.autocast:
    """A context in which a model computes in this precision: off in float32, mixed in all others.

    With int8, everything except the quantised products is in bfloat16.
    """
    kind = torch.bfloat16 if precision == "int8" else getattr(torch, precision)
    return torch.autocast(device.type, kind, enabled=precision != "float32")


def no_autocast(x: Tensor) -> torch.autocast:
    """A context in which results have the dtype of `x`, even under autocast.

    On a GPU, autocast computes norms, softmax and sums in float32 and returns float32, which for a state in bfloat16 is
    five times the memory traffic of a norm. PyTorch's kernels accumulate in float32 in any case; only their results
    are rounded.
    """
    return torch.autocast(x.device.type, enabled=False)


def to_autocast_dtype(x: Float[Tensor, ...]) -> Float[Tensor, ...]:
    """`x` in the autocast dtype if autocast is on: states are kept in it between layers too."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
