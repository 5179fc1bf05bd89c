"""Lexical shortcuts and feature fusion: keys and values as a gated mixture (Emelin et al. 2019, Eqs. 9-14)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from jointnmt.ops.backend import uses_kernels
from jointnmt.ops.native.calls import (
    broadcast_to,
    call,
    empty,
    evenly_spaced,
    exact,
    gated_mixture,
    is_sequence_or_grid,
    rows_of,
    zeros,
)


def gated_kv(
    hidden: Float[Tensor, "B *places F"],
    lexical: Sequence[Float[Tensor, "B *_ F"]],
    gate_bias: Float[Tensor, "2 E"],
    fusion: bool,
    gates: list[Tensor] | None = None,
) -> Float[Tensor, "B *places EE"]:
    """Keys, then values: `gate * lexical + (1 - gate) * hidden`, `gate = sigmoid(lexical + hidden + gate_bias)`.

    Args:
        hidden: projected hidden states, of F = 2E features; with `fusion` F = 4E: their summand of the lexical half,
            then of the hidden half.
        lexical: one or more summands of the projected lexical input, broadcast to the places. On a grid, the input is
            the sum of a source and a target side, and so is its projection.
        gate_bias: gate bias of keys, then of values.
        fusion: feature fusion: both terms of the mixture are projections of both inputs.
        gates: if given, the gates `[*places, 2, E]` are appended.
    """
    fits = len(lexical) <= 2 and is_sequence_or_grid(hidden)
    fits = fits and hidden.shape[-1] == gate_bias.numel() * (2 if fusion else 1)
    if torch.is_grad_enabled():  # each thread sums the gradients of its own sentences
        fits = fits and all(len(part) == len(hidden) for part in lexical)
    if gates is None and fits and uses_kernels(hidden, gate_bias.shape[-1], beside=lexical):
        bias = exact(gate_bias.flatten())
        if not torch.is_grad_enabled():
            return _forward(evenly_spaced(hidden), bias, fusion, [part.contiguous() for part in lexical])
        return _GatedKV.apply(hidden, bias, fusion, *lexical)
    lexical_half, hidden_half = sum(lexical[1:], start=lexical[0]), hidden
    if fusion:
        lexical_half, hidden_half = (lexical_half + hidden).chunk(2, dim=-1)
    gate = torch.sigmoid(lexical_half + hidden_half + gate_bias.flatten().to(hidden.dtype))
    if gates is not None:
        gates.append(gate.detach().unflatten(-1, (2, -1)))
    return torch.lerp(hidden_half.expand_as(gate), lexical_half.expand_as(gate), gate)


def _forward(hidden: Tensor, bias: Tensor, fusion: bool, parts: Sequence[Tensor]) -> Tensor:
    mixed = empty(hidden, *hidden.shape[:-1], len(bias))
    call(
        "gated_kv_forward", hidden, rows_of(hidden)[0], ctypes.byref(gated_mixture(hidden, bias, fusion, parts)), mixed
    )
    return mixed


class _GatedKV(torch.autograd.Function):
    """`gated_kv` in one pass each, forward and backward; gates are recomputed instead of saved."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, bias: Tensor, fusion: bool, *parts: Tensor) -> Tensor:
        hidden, parts = evenly_spaced(hidden), tuple(part.contiguous() for part in parts)
        ctx.save_for_backward(hidden, bias, *parts)
        ctx.fusion = fusion
        return _forward(hidden, bias, fusion, parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, bias, *parts = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_hidden = empty(hidden, *hidden.shape)
        d_bias, d_parts = torch.zeros_like(bias), [zeros(*part.shape) for part in parts]
        first, second = (broadcast_to(hidden, part) for part in (*d_parts, None)[:2])
        mixture = gated_mixture(hidden, bias, ctx.fusion, parts)
        call(
            "gated_kv_backward", hidden, len(hidden), ctypes.byref(mixture), gradient, d_hidden,
            ctypes.byref(first), ctypes.byref(second), d_bias,
        )  # fmt: skip
        return d_hidden, d_bias, None, *(part.to(hidden.dtype) for part in d_parts)
