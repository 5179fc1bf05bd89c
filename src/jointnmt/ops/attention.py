"""Scaled dot-product attention with several heads: along an axis, and over a cache of keys and values.

The scale is 1/sqrt(D), D the size of one head, as in the authors' code; Li et al. 2020, Eq. 2 prints the model's size.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from jointnmt.ops.autocast import no_autocast
from jointnmt.ops.backend import kernels_read, multiplies_as_float32, uses_fused_attention, uses_kernels
from jointnmt.ops.dropout import Dropout
from jointnmt.ops.masks import AttentionMask, OwnSlots
from jointnmt.ops.native.calls import (
    CacheLayout,
    call,
    empty,
    evenly_spaced,
    exact,
    is_sequence_or_grid,
    lines_of,
    roles_of,
)

FUSED = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
"""PyTorch's backends, fastest first at the lengths of sentences; the first usable one is taken. Flash attention takes
3 times as long on lines of 23 tokens, 1.4 times on 92 (H100). cuDNN's is left out: it builds a plan for every new
shape."""


def attention(
    query: Float[Tensor, "*batch Q D"],
    key: Float[Tensor, "*batch L D"],
    value: Float[Tensor, "*batch L D"],
    mask: AttentionMask,
    dropout: Dropout | None = None,
    attn_weights: list[Tensor] | None = None,
) -> Float[Tensor, "*batch Q D"]:
    """Scaled dot-product attention, `softmax(query key^T / sqrt(D) + bias) value`: the plain form of all others.

    On a GPU, PyTorch's fused kernels compute it, unless the weights are requested or dropout applies to them.

    Args:
        dropout: applied to the weights.
        attn_weights: if given, the weights `[*batch, Q, L]` before dropout are appended.
    """
    if uses_fused_attention(query) and attn_weights is None and not _drops(dropout):
        return _fused(query, key, value, mask)
    scores = _batched_product(query / math.sqrt(query.shape[-1]), key.transpose(-2, -1)) + mask.bias
    with no_autocast(scores):
        weights = torch.softmax(scores, dim=-1)
    if attn_weights is not None:
        attn_weights.append(weights.detach())
    if dropout is not None:
        weights = dropout(weights)
    return _batched_product(weights, value)


def _batched_product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`; bfloat16 is multiplied as float32 where the kernels do so, as PyTorch's product is slow there."""
    if left.dtype != torch.bfloat16 or not (kernels_read(left) and multiplies_as_float32()):
        return torch.matmul(left, right)
    wide = left.float()
    with no_autocast(wide):
        return torch.matmul(wide, right.float()).to(left.dtype)


def axial_attention(
    projected: Sequence[Float[Tensor, "B *places _"]],
    num_heads: int,
    axis: int,
    mask: AttentionMask,
    dropout: Dropout,
    bias: Float[Tensor, " EEE"] | None = None,
    attn_weights: list[Tensor] | None = None,
) -> Float[Tensor, "B *places E"]:
    """Multi-head attention along one axis, independently for every index of the others.

    Args:
        projected: queries, keys and values of a sequence `[B, L, ...]` or a grid `[B, S, T, ...]`: in one tensor of 3E
            features, or in two, of E (queries) and 2E (keys, values).
        num_heads: H, a divisor of E.
        axis: the axis to attend along: 1 for a sequence, 1 or 2 for a grid.
        mask: its bias is broadcast to `[B, kept axis, H, L, L]`, or `[B, H, L, L]` for a sequence.
        dropout: applied to the weights.
        bias: added to queries, keys and values, which must then be in one tensor; the kernel adds it as it reads them,
            which saves a pass over memory.
        attn_weights: if given, the weights `[B, H, kept axis, L, L]` before dropout, or `[B, H, L, L]` for a sequence,
            are appended.
    """
    first = projected[0]
    embed_dim = sum(part.shape[-1] for part in projected) // 3
    fits = is_sequence_or_grid(first) and (bias is None or len(bias) == 3 * embed_dim)
    fits = fits and (mask.is_causal or (mask.lengths is not None and len(mask.lengths) == len(first)))
    if attn_weights is None and fits and uses_kernels(first, embed_dim, embed_dim // num_heads, beside=projected[1:]):
        kept = [length for number, length in enumerate(first.shape[:-1]) if number != axis]
        weight_mask = dropout.mask((*kept, num_heads, *[first.shape[axis]] * 2), first)
        geometry, bias = (num_heads, axis, mask.is_causal), None if bias is None else exact(bias)
        if not torch.is_grad_enabled():
            return _forward(bias, geometry, mask.lengths, weight_mask, projected)[0]
        return _AxialAttention.apply(bias, geometry, mask.lengths, weight_mask, *projected)
    if bias is not None:
        projected = [first + bias.to(first.dtype)]
    # Each [B, *places, nE] -> n of [B, kept axes, H, L, D].
    heads = [part.movedim(axis, -2) for each in projected for part in _by_role(each, embed_dim, num_heads)]
    attended = attention(heads[0], heads[1], heads[2], mask, dropout, attn_weights)
    if attn_weights is not None:
        attn_weights[-1] = attn_weights[-1].movedim(-3, 1)
    return attended.movedim(-2, axis).flatten(-2)


def cached_attention(
    query: Float[Tensor, "G *lines R E"],
    key_value: Float[Tensor, "G *lines C EE"],
    num_heads: int,
    mask: AttentionMask,
    dropout: Dropout | None = None,
    attn_weights: list[Tensor] | None = None,
) -> Float[Tensor, "G *lines R E"]:
    """Multi-head attention of rows over the keys and values of a cache, or of the encoder's output.

    Args:
        query: queries; may be the first features of a wider tensor.
        key_value: keys, then values, of C slots, of which the first L are read, as many as the mask has keys.
        num_heads: H, a divisor of E.
        mask: padding, or the slots of each row; its bias is broadcast to `[G, *lines, H, R, L]`.
        dropout: applied to the weights.
        attn_weights: if given, the weights `[G, *lines, H, R, L]` before dropout are appended.
    """
    embed_dim = query.shape[-1]
    needs_weights = attn_weights is not None or _drops(dropout)
    known_mask = mask.own is not None or (mask.lengths is not None and len(mask.lengths) == len(query))
    fits = key_value.shape == (*query.shape[:-2], key_value.shape[-2], 2 * embed_dim)
    without_gradient = not torch.is_grad_enabled()
    usable = fits and known_mask and not needs_weights
    if without_gradient and usable and uses_kernels(query, embed_dim // num_heads):
        return _cached(query, key_value, num_heads, mask)
    key_value = key_value[..., : mask.bias.shape[-1], :]
    heads = [*_by_role(query, embed_dim, num_heads), *_by_role(key_value, embed_dim, num_heads)]
    queries, keys, values = (part.movedim(-2, -3) for part in heads)  # each -> [G, *lines, H, R or L, D]
    return attention(queries, keys, values, mask, dropout, attn_weights).movedim(-3, -2).flatten(-2)


def _drops(dropout: Dropout | None) -> bool:
    return dropout is not None and dropout.active


def _by_role(projected: Tensor, embed_dim: int, num_heads: int) -> tuple[Tensor, ...]:
    """Views of the queries, keys or values in a tensor, with heads: `[*places, H, D]` each."""
    size = embed_dim // num_heads
    return tuple(part.unflatten(-1, (num_heads, size)) for part in projected.split(embed_dim, dim=-1))


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
    """Attention by PyTorch's fused kernels; they take four axes, so leading ones are flattened (views if possible)."""
    leading = query.shape[:-3]
    bias = None if mask.is_causal else mask.bias
    if bias is not None and bias.ndim > 3:  # expanded to the leading axes, still broadcast over heads and queries
        bias = mask.merged(leading)
    query, key, value = (tensor.reshape(-1, *tensor.shape[-3:]) for tensor in (query, key, value))
    with sdpa_kernel(FUSED, set_priority=True):
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, is_causal=mask.is_causal)
    return attended.unflatten(0, leading)


class _AxialAttention(torch.autograd.Function):
    """`axial_attention` in one pass over memory. The backward pass recomputes the weights instead of storing them."""

    @staticmethod
    def forward(
        ctx: Any,
        bias: Tensor | None,
        geometry: tuple[int, int, bool],
        lengths: Tensor | None,
        weight_mask: Tensor | None,
        *projected: Tensor,
    ) -> Tensor:
        result, saved = _forward(bias, geometry, lengths, weight_mask, projected)
        ctx.save_for_backward(bias, *saved)
        ctx.geometry, ctx.embed_dim = geometry, result.shape[-1]
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        bias, lengths, weight_mask, *projected = ctx.saved_tensors
        gradient = gradient.contiguous()
        lines = lines_of(projected[0], ctx.embed_dim, ctx.geometry, lengths, weight_mask)
        results = [empty(part, *part.shape) for part in projected]
        roles, of_roles = (roles_of(each, ctx.embed_dim) for each in (projected, results))
        d_bias = None if bias is None else torch.zeros_like(bias)
        call("axial_attention_backward", gradient, ctypes.byref(lines), *roles, bias, gradient, *of_roles, d_bias)
        return d_bias, None, None, None, *results


def _forward(
    bias: Tensor | None,
    geometry: tuple[int, int, bool],
    lengths: Tensor | None,
    weight_mask: Tensor | None,
    projected: Sequence[Tensor],
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Call the kernel; also return lengths, dropout mask and projections in the layout that it reads."""
    projected = tuple(map(evenly_spaced, projected))
    first, embed_dim = projected[0], sum(part.shape[-1] for part in projected) // 3
    lengths = None if lengths is None else lengths.to(torch.int32).contiguous()
    if weight_mask is not None:
        length = first.shape[geometry[1]]
        weight_mask = weight_mask.float().expand(*weight_mask.shape[:-2], length, length).contiguous()
    result = empty(first, *first.shape[:-1], embed_dim)
    lines = lines_of(first, embed_dim, geometry, lengths, weight_mask)
    call("axial_attention_forward", result, ctypes.byref(lines), *roles_of(projected, embed_dim), bias, result)
    return result, (lengths, weight_mask, *projected)


def _cached(query: Tensor, key_value: Tensor, num_heads: int, mask: AttentionMask) -> Float[Tensor, "G *lines R E"]:
    """Call the kernel, which reads each row's keys and values in place: its own slots, or the first `lengths`."""
    flat = query.view(-1, query.shape[-1])  # raises where rows are not evenly spaced
    assert flat.stride(-1) == 1 and key_value.is_contiguous() and key_value.dtype == query.dtype
    result = empty(query, *query.shape)
    lengths = None if mask.own is not None else mask.lengths
    lengths = None if lengths is None else lengths.to(torch.int32).contiguous()
    layout = _layout(query.shape, num_heads, key_value.shape[-2], mask.own, lengths)
    call("cached_attention", query, ctypes.byref(layout), flat, flat.stride(0), key_value, result)
    return result


def append_to_cache(
    stored: Float[Tensor, "G *lines C EE"], key_value: Float[Tensor, "G *lines R EE"], own: OwnSlots
) -> None:
    """Write the newest keys and values of R rows of each sentence into their slots of a cache."""
    width = key_value.shape[-1]
    if torch.is_grad_enabled() or not uses_kernels(key_value, width) or not uses_kernels(stored, width):
        first = own.structure.newest
        stored[..., first : first + key_value.shape[-2], :] = key_value
        return
    flat = key_value.view(-1, width)
    assert flat.stride(-1) == 1 and stored.is_contiguous() and stored.dtype == key_value.dtype
    layout = _layout((*key_value.shape[:-1], width // 2), 1, stored.shape[-2], own, None)
    call("append_to_cache", stored, ctypes.byref(layout), flat, flat.stride(0), stored)


def _layout(
    rows: Sequence[int], num_heads: int, capacity: int, own: OwnSlots | None, lengths: Tensor | None
) -> CacheLayout:
    """Cache layout for rows `[G, *lines, R, E]`."""
    sentences, *lines, count, embed_dim = rows
    return CacheLayout(
        sentences, math.prod(lines), count, num_heads, embed_dim // num_heads, capacity,
        None if own is None else ctypes.addressof(own.structure), None if lengths is None else lengths.data_ptr(),
    )  # fmt: skip
