"""The grid of source-target pairs (Li et al. 2020, Eq. 4)."""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from jointnmt.ops.backend import uses_kernels
from jointnmt.ops.native.calls import broadcast_to, call, empty, rows_of


def grid_of_sides(source: Float[Tensor, "B S 1 E"], target: Float[Tensor, "B 1 T E"]) -> Float[Tensor, "B S T E"]:
    """`x_s + y_t` for every source position s and target position t."""
    same_kind = source.dtype == target.dtype
    if torch.is_grad_enabled() or not same_kind or not uses_kernels(source, source.shape[-1]):
        return source + target
    result = empty(source, *source.shape[:2], *target.shape[2:])
    sides = (ctypes.byref(broadcast_to(result, side)) for side in (source, target))
    call("grid_of_sides", result, *rows_of(result), *sides, result)
    return result
