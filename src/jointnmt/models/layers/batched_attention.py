"""Self-attention as batched products with its backward pass written out: the fast path of training on a CPU.

The library's fused attention is made for long sequences, and slow at the lengths of sentences on a CPU. Here the fused
projection is brought into the order of the products by one copy, scores are masked and normalised in place,
and only the weights and that copy are kept for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def batched_attention(
    projected: Sequence[Float[Tensor, "*places _"]], num_heads: int, bias: Float[Tensor, ...] | None, axis: int
) -> Float[Tensor, "*places _"]:
    """Multi-head attention along `axis`.

    Args:
        projected: queries, keys and values of all heads, in this order along the last axes of one tensor or several:
            `[B, L, 3E]` of a sequence or `[B, S, T, 3E]` of a grid, or `[..., E]` and `[..., 2E]`, say.
        num_heads: H, with E = H * D.
        bias: 0 or minus infinity, broadcast to `[*kept axes, H, L, L]`.
        axis: the axis to attend along; the kept ones are those before the last but this.
    """
    result: Tensor = _BatchedAttention.apply(num_heads, bias, axis, *projected)
    return result


class _BatchedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, num_heads: int, bias: Tensor | None, axis: int, *projected: Tensor) -> Tensor:
        size = sum(part.shape[-1] for part in projected) // (3 * num_heads)
        # Each [*axes, nE] -> [n, *kept, H, L, D].
        roles = [part.unflatten(-1, (-1, num_heads, size)).movedim(-3, 0).movedim(axis + 1, -2) for part in projected]
        ctx.roles = [part.shape[0] for part in roles]
        stacked = roles[0].contiguous() if len(roles) == 1 else torch.cat(roles)
        shape = stacked.shape[1:]
        query, key, value = stacked.view(3, -1, *shape[-2:]).unbind()
        scale = 1 / math.sqrt(shape[-1])
        scores = torch.baddbmm(query.new_empty(()), query, key.transpose(1, 2), beta=0, alpha=scale)
        weights = _masked_softmax(scores.view(*shape[:-1], shape[-2]), bias).view_as(scores)
        ctx.save_for_backward(stacked, weights)
        ctx.axis = axis
        attended = torch.bmm(weights, value).view(shape)  # [*kept, H, L, D]
        return attended.movedim(-2, axis).flatten(-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        stacked, weights = ctx.saved_tensors
        shape = stacked.shape[1:]
        query, key, value = stacked.view(3, -1, *shape[-2:]).unbind()
        scale = 1 / math.sqrt(shape[-1])
        gradient = gradients[0].unflatten(-1, (shape[-3], shape[-1])).movedim(ctx.axis, -2)
        gradient = gradient.reshape(query.shape)
        result = torch.empty_like(stacked)
        d_query, d_key, d_value = result.view(3, -1, *shape[-2:]).unbind()
        torch.bmm(weights.transpose(1, 2), gradient, out=d_value)
        d_weights = torch.bmm(gradient, value.transpose(1, 2))
        d_scores = _softmax_gradient(d_weights, weights)
        torch.baddbmm(d_query, d_scores, key, beta=0, alpha=scale, out=d_query)
        torch.baddbmm(d_key, d_scores.transpose(1, 2), query, beta=0, alpha=scale, out=d_key)
        d_roles = result.movedim(-2, ctx.axis + 1).movedim(0, -3).split(ctx.roles, dim=-3)  # -> [*axes, n, H, D]
        return None, None, None, *(part.flatten(-3) for part in d_roles)


def _masked_softmax(scores: Tensor, bias: Tensor | None) -> Tensor:
    """`softmax(scores + bias)` over the last axis; uses `scores` up.

    The library's softmax works row by row, and rows as short as a sentence cost it several times as much as these
    passes over the whole tensor, in float32 or better.
    """
    weights = _exact(scores)
    if bias is not None:
        weights.add_(bias)
    weights.sub_(weights.amax(dim=-1, keepdim=True)).exp_()
    return weights.div_(weights.sum(dim=-1, keepdim=True)).to(scores.dtype)


def _softmax_gradient(gradient: Tensor, weights: Tensor) -> Tensor:
    """The gradient with respect to the scores, `weights * (gradient - sum(weights * gradient))`; uses `gradient` up."""
    exact, result = _exact(weights), _exact(gradient)
    total = (exact * result).sum(dim=-1, keepdim=True)
    return result.sub_(total).mul_(exact).to(weights.dtype)


def _exact(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
