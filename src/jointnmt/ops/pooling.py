"""Attention pooling: the reduction of the grid along the source axis (Li et al. 2020, Eq. 6)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from jointnmt.ops.autocast import no_autocast
from jointnmt.ops.backend import uses_kernels
from jointnmt.ops.native.calls import call, empty


def attention_pool(
    x: Float[Tensor, "B S T E"],
    scores: Float[Tensor, "B S T E"],
    mask: Bool[Tensor, "B S"],
    attn_weights: list[Tensor] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "B T E"]:
    """The mean of x over the source positions, each feature weighted by its own softmax of `scores`.

    Args:
        x: the grid.
        scores: scores of every feature of every cell.
        mask: True at real tokens; padding is on the right.
        attn_weights: if given, the weights `[B, S, T, E]` are appended.
        lengths: number of real tokens of each sentence; None: they are counted. For a sentence without tokens the mean
            is undefined: the kernel gives zeros, the plain form NaN.
    """
    fit = scores.shape == x.shape and mask.shape == x.shape[:2] and (lengths is None or len(lengths) == len(x))
    if attn_weights is None and fit and uses_kernels(x, x.shape[-1], beside=[scores]):
        if lengths is None:
            lengths = mask.sum(dim=1, dtype=torch.int32)
        elif lengths.dtype != torch.int32 or not lengths.is_contiguous():
            lengths = lengths.to(torch.int32).contiguous()
        if not torch.is_grad_enabled():
            return _pooled(x.contiguous(), scores.contiguous(), lengths)
        return _AttentionPool.apply(x, scores, lengths)
    with no_autocast(x):
        weights = scores.masked_fill(~mask[:, :, None, None], -torch.inf).softmax(dim=1)
        if attn_weights is not None:
            attn_weights.append(weights.detach())
        return (weights * x).sum(dim=1)


def _pooled(x: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
    result = empty(x, x.shape[0], *x.shape[2:])
    call("attention_pool_forward", x, *x.shape, lengths, x, scores, result)
    return result


class _AttentionPool(torch.autograd.Function):
    """`attention_pool` in one pass. The backward pass recomputes the weights instead of storing them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
        x, scores = x.contiguous(), scores.contiguous()
        ctx.save_for_backward(x, scores, lengths)
        return _pooled(x, scores, lengths)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scores, lengths = ctx.saved_tensors
        d_x, d_scores = empty(x, *x.shape), empty(scores, *scores.shape)
        call("attention_pool_backward", x, *x.shape, lengths, x, scores, gradient.contiguous(), d_x, d_scores)
        return d_x, d_scores, None
