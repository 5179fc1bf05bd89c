"""The kernels as autograd functions, with their backward passes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from jointnmt.ops.native.calls import (
    call,
    empty,
    floats,
    gated_mixture,
    lines_of,
    multiplies,
    roles_of,
    rows_of,
    rows_or_norm,
    shared,
    sides_of,
)

BLOCK_ROWS = 2048
"""Rows of a product that sums over them: few enough to stay in the cache, enough to be worth a call."""


class AttentionFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        bias: Tensor | None,
        geometry: tuple[int, int, bool],
        lengths: Tensor | None,
        noise: Tensor | None,
        *projected: Tensor,
    ) -> Tensor:
        result, read = attended(bias, geometry, lengths, noise, projected)
        ctx.save_for_backward(bias, *read)
        ctx.geometry, ctx.embed_dim = geometry, result.shape[-1]
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        bias, lengths, noise, *projected = ctx.saved_tensors
        results, d_bias = _attention_gradients(
            projected, bias, ctx.embed_dim, ctx.geometry, lengths, noise, gradient.contiguous()
        )
        return d_bias, None, None, None, *results


def attended(
    bias: Tensor | None,
    geometry: tuple[int, int, bool],
    lengths: Tensor | None,
    noise: Tensor | None,
    projected: Sequence[Tensor],
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Attention; and lengths, noise and what was projected, as the kernels read them."""
    projected = tuple(part.contiguous() for part in projected)
    embed_dim = sum(part.shape[-1] for part in projected) // 3
    lengths, noise = _seen(lengths), _weight_noise(noise, projected[0].shape[geometry[1]])
    return _attended(projected, bias, embed_dim, geometry, lengths, noise), (lengths, noise, *projected)


def _seen(lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else lengths.to(torch.int32).contiguous()


def _weight_noise(noise: Tensor | None, length: int) -> Tensor | None:
    """Queries and keys as the kernels read them."""
    return None if noise is None else noise.float().expand(*noise.shape[:-2], length, length).contiguous()


def _attended(
    projected: Sequence[Tensor],
    bias: Tensor | None,
    embed_dim: int,
    geometry: tuple[int, int, bool],
    lengths: Tensor | None,
    noise: Tensor | None,
) -> Tensor:
    like = projected[0]
    result = empty(like, *like.shape[:-1], embed_dim)
    lines = lines_of(like, embed_dim, geometry, lengths, noise)
    call("attention_forward", result, ctypes.byref(lines), *roles_of(projected, embed_dim), bias, result)
    return result


def _attention_gradients(
    projected: Sequence[Tensor],
    bias: Tensor | None,
    embed_dim: int,
    geometry: tuple[int, int, bool],
    lengths: Tensor | None,
    noise: Tensor | None,
    gradient: Tensor,
) -> tuple[list[Tensor], Tensor | None]:
    """Of what was projected, where it has queries, keys and values; and of the bias."""
    lines = lines_of(projected[0], embed_dim, geometry, lengths, noise)
    results = [empty(part, *part.shape) for part in projected]
    d_bias = None if bias is None else torch.zeros_like(bias)
    query, key, value, _, _ = roles_of(results, embed_dim)
    roles = roles_of(projected, embed_dim)
    call("attention_backward", gradient, ctypes.byref(lines), *roles, bias, gradient, query, key, value, d_bias)
    return results, d_bias


def residual_normed(
    x: Tensor,
    update: Tensor | None,
    update_bias: Tensor | None,
    noise: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    wants_statistics: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`x + noise * (update + update_bias)`, or x; its layer norm; and mean and inverse deviation of each row."""
    x = x.contiguous()
    update = None if update is None else update.contiguous()
    total = x if update is None else empty(x, *x.shape)
    normed = None if weight is None else empty(x, *x.shape)
    statistics = floats(rows_of(x)[0], 2) if wants_statistics and weight is not None else None
    factors = shared(noise, x)
    call(
        "residual_norm_forward", x, *rows_of(x), x, update, update_bias, ctypes.byref(factors), weight, bias, total,
        normed, statistics,
    )  # fmt: skip
    return total, normed, statistics


class ResidualNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        update: Tensor | None,
        update_bias: Tensor | None,
        noise: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        total, normed, statistics = residual_normed(x, update, update_bias, noise, weight, bias, wants_statistics=True)
        ctx.save_for_backward(total, statistics, noise, weight)
        ctx.has_update, ctx.has_update_bias = update is not None, update_bias is not None
        if statistics is not None:
            ctx.mark_non_differentiable(statistics)
        return None if update is None else total, normed, statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor | None, d_normed: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        total, statistics, noise, weight = ctx.saved_tensors
        d_total = None if d_total is None else d_total.contiguous()
        d_normed = None if d_normed is None else d_normed.contiguous()
        d_x = empty(total, *total.shape)
        d_update = empty(total, *total.shape) if ctx.has_update else None
        gradients = floats(3, total.shape[-1])
        factors = shared(noise, total)
        call(
            "residual_norm_backward", total, *rows_of(total), total, statistics, ctypes.byref(factors), weight, d_total,
            d_normed, d_x, d_update, gradients,
        )  # fmt: skip
        of_norm = (None, None) if weight is None else gradients[:2].unbind()
        return d_x, d_update, gradients[2] if ctx.has_update_bias else None, None, *of_norm


class ProjectionFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *norm: Tensor) -> Tensor:
        """If x is a layer norm, `norm` is what it is of, its statistics, weight and bias: then these are kept."""
        own_weight = weight.to(x.dtype).contiguous()
        x = x.contiguous()
        ctx.save_for_backward(own_weight, *(norm or (x,)))
        ctx.weight_type, ctx.has_bias = weight.dtype, bias is not None
        if multiplies(x, *own_weight.shape):
            result = empty(x, *x.shape[:-1], len(weight))
            call("linear_forward", x, *rows_of(x), len(weight), x, own_weight, bias, result)
            return result
        result = _product(x, own_weight.t())
        return result if bias is None else result.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, x, *norm = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        nothing = [None] * (1 + len(norm) if norm else 0)
        if not multiplies(x, *weight.shape):
            d_weight = _weight_gradient(rows, _normed_rows(x, norm), ctx.weight_type)
            d_bias = rows.sum(0, dtype=torch.float32) if ctx.has_bias else None
            return _product(gradient, weight), d_weight, d_bias, *nothing
        d_x, d_weight, d_bias = empty(x, *x.shape), floats(*weight.shape), floats(len(weight)) if ctx.has_bias else None
        call(
            "linear_backward", x, *rows_of(x), len(weight), ctypes.byref(rows_or_norm(x, norm)), weight,
            rows.contiguous(), d_x, d_weight, d_bias,
        )  # fmt: skip
        return d_x, d_weight.to(ctx.weight_type), d_bias, *nothing


class ProjectedSumFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, centred: Tensor, projected: Tensor, source_length: int) -> Tensor:
        centred, projected = centred.contiguous(), projected.contiguous()
        ctx.save_for_backward(centred, projected)
        ctx.source_length = source_length
        batch, both, features = projected.shape
        result = empty(projected, batch, source_length, both - source_length, features)
        sides = sides_of(centred, projected, source_length)
        call("projected_sum_forward", projected, batch, ctypes.byref(sides), result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        centred, projected = ctx.saved_tensors
        sides = sides_of(centred, projected, ctx.source_length)
        d_centred, d_projected = floats(*centred.shape), floats(*projected.shape)
        call(
            "projected_sum_backward", projected, len(projected), ctypes.byref(sides), gradient.contiguous(), d_centred,
            d_projected,
        )  # fmt: skip
        return d_centred, d_projected.to(projected.dtype), None


class FeedForwardFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        output_weight: Tensor,
        noise: Tensor | None,
        *norm: Tensor,
    ) -> Tensor:
        """See `ProjectionFunction` for `norm`."""
        ctx.weight_type = hidden_weight.dtype
        weights = hidden_weight.to(x.dtype).contiguous(), output_weight.to(x.dtype).contiguous()
        x = x.contiguous()
        if multiplies(x, *hidden_weight.shape):
            hidden, result = empty(x, *x.shape[:-1], len(hidden_weight)), empty(x, *x.shape)
            factors = shared(noise, hidden)
            call(
                "feed_forward_forward", x, *rows_of(x), len(hidden_weight), x, weights[0], hidden_bias,
                ctypes.byref(factors), weights[1], hidden, result,
            )  # fmt: skip
        else:
            hidden = _product(x, weights[0].t())
            factors = shared(noise, hidden)
            call("bias_relu_forward", hidden, *rows_of(hidden), hidden, hidden_bias, ctypes.byref(factors))
            result = _product(hidden, weights[1].t())
        ctx.save_for_backward(hidden, *weights, noise, *(norm or (x,)))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, hidden_weight, output_weight, noise, x, *norm = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_bias = floats(hidden.shape[-1])
        factors = shared(noise, hidden)
        nothing = [None] * (1 + len(norm) if norm else 0)
        if multiplies(x, *hidden_weight.shape):
            d_x, d_first, d_second = empty(x, *x.shape), floats(*hidden_weight.shape), floats(*output_weight.shape)
            call(
                "feed_forward_backward", x, *rows_of(x), hidden.shape[-1], ctypes.byref(rows_or_norm(x, norm)), hidden,
                hidden_weight, ctypes.byref(factors), output_weight, gradient, d_x, d_first, d_bias, d_second,
            )  # fmt: skip
            return d_x, d_first.to(ctx.weight_type), d_bias, d_second.to(ctx.weight_type), None, *nothing
        d_second = _weight_gradient(gradient.flatten(0, -2), hidden.flatten(0, -2), ctx.weight_type)
        d_hidden = _product(gradient, output_weight)
        call("bias_relu_backward", hidden, *rows_of(hidden), hidden, d_hidden, ctypes.byref(factors), d_bias)
        d_first = _weight_gradient(d_hidden.flatten(0, -2), _normed_rows(x, norm), ctx.weight_type)
        return _product(d_hidden, hidden_weight), d_first, d_bias, d_second, None, *nothing


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """The library's, in lent memory."""
    result = empty(x, *x.shape[:-1], weight.shape[1])
    torch.mm(x.flatten(0, -2), weight, out=result.view(-1, weight.shape[1]))
    return result


def _normed_rows(x: Tensor, norm: Sequence[Tensor]) -> Tensor:
    """The rows of x, or their layer norm, computed anew: see `rows_or_norm`."""
    if not norm:
        return x.flatten(0, -2)
    _, weight, bias = norm
    _, normed, _ = residual_normed(x, None, None, None, weight, bias, wants_statistics=False)
    assert normed is not None
    return normed.flatten(0, -2)


def _weight_gradient(gradient: Tensor, x: Tensor, kind: torch.dtype) -> Tensor:
    """`gradient^T x`, over blocks of rows: the library's product over many rows does not keep them in the cache."""
    if len(x) <= 2 * BLOCK_ROWS:
        return torch.mm(gradient.t(), x).to(kind)
    total = floats(gradient.shape[1], x.shape[1])
    for rows, of_x in zip(gradient.split(BLOCK_ROWS), x.split(BLOCK_ROWS), strict=True):
        total += torch.mm(rows.t(), of_x)
    return total.to(kind)


class ReductionFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
        x, scores, lengths = x.contiguous(), scores.contiguous(), lengths.to(torch.int32).contiguous()
        ctx.save_for_backward(x, scores, lengths)
        result = empty(x, x.shape[0], *x.shape[2:])
        call("reduction_forward", x, *x.shape, lengths, x, scores, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scores, lengths = ctx.saved_tensors
        d_x, d_scores = empty(x, *x.shape), empty(scores, *scores.shape)
        call("reduction_backward", x, *x.shape, lengths, x, scores, gradient.contiguous(), d_x, d_scores)
        return d_x, d_scores, None


class CrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, weights: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        logits, gold = logits.contiguous(), gold.contiguous()
        statistics = floats(len(gold), 3)
        call("cross_entropy_forward", logits, *logits.shape, logits, gold, statistics)
        ctx.save_for_backward(logits, gold, weights, statistics)
        ctx.smoothing = smoothing
        _, nll, even = statistics.unbind(1)
        ctx.mark_non_differentiable(nll)
        return (1 - smoothing) * nll.dot(weights) + smoothing * even.dot(weights), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """softmax(logits) minus the smoothed target, times the weight of the row."""
        logits, gold, weights, statistics = ctx.saved_tensors
        result = empty(logits, *logits.shape)
        call(
            "cross_entropy_backward", logits, *logits.shape, logits, gold, statistics, weights * gradient,
            float(ctx.smoothing), result,
        )  # fmt: skip
        return result, None, None, None


class MixtureFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, bias: Tensor, fusion: bool, wants_gates: bool, *parts: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        hidden, parts = hidden.contiguous(), tuple(part.contiguous() for part in parts)
        ctx.save_for_backward(hidden, bias, *parts)
        ctx.fusion = fusion
        gates = empty(hidden, *hidden.shape[:-1], len(bias)) if wants_gates else None
        mixed = _mixed(hidden, bias, fusion, parts, gates)
        if gates is not None:
            ctx.mark_non_differentiable(gates)
        return mixed, gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        hidden, bias, *parts = ctx.saved_tensors
        d_hidden = empty(hidden, *hidden.shape)
        d_bias, d_parts = _mixture_gradients(hidden, bias, ctx.fusion, parts, gradient.contiguous(), d_hidden)
        return d_hidden, d_bias, None, None, *d_parts


class ShortcutAttentionFunction(torch.autograd.Function):
    """Mixture, then attention: queries and the hidden input lie in one tensor, forwards and backwards."""

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        bias: Tensor,
        fusion: bool,
        geometry: tuple[int, int, bool],
        lengths: Tensor | None,
        noise: Tensor | None,
        *parts: Tensor,
    ) -> Tensor:
        projected, parts = projected.contiguous(), tuple(part.contiguous() for part in parts)
        embed_dim = len(bias) // 2
        mixed = _mixed(projected[..., embed_dim:], bias, fusion, parts, None)
        lengths, noise = _seen(lengths), _weight_noise(noise, projected.shape[geometry[1]])
        ctx.save_for_backward(projected, mixed, bias, lengths, noise, *parts)
        ctx.fusion, ctx.geometry = fusion, geometry
        return _attended((projected, mixed), None, embed_dim, geometry, lengths, noise)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        projected, mixed, bias, lengths, noise, *parts = ctx.saved_tensors
        embed_dim = len(bias) // 2
        (d_projected, d_mixed), _ = _attention_gradients(
            (projected, mixed), None, embed_dim, ctx.geometry, lengths, noise, gradient.contiguous()
        )
        hidden, d_hidden = projected[..., embed_dim:], d_projected[..., embed_dim:]
        d_bias, d_parts = _mixture_gradients(hidden, bias, ctx.fusion, parts, d_mixed, d_hidden)
        return d_projected, d_bias, None, None, None, None, *d_parts


def _mixed(hidden: Tensor, bias: Tensor, fusion: bool, parts: Sequence[Tensor], gates: Tensor | None) -> Tensor:
    mixed = empty(hidden, *hidden.shape[:-1], len(bias))
    mixture = gated_mixture(hidden, bias, fusion, parts)
    call("mixture_forward", hidden, rows_of(hidden)[0], ctypes.byref(mixture), mixed, gates)
    return mixed


def _mixture_gradients(
    hidden: Tensor, bias: Tensor, fusion: bool, parts: Sequence[Tensor], gradient: Tensor, d_hidden: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Of bias and parts; that of the hidden input is written to `d_hidden`, which lies as `hidden` does."""
    d_bias, d_parts = torch.zeros_like(bias), [floats(*part.shape) for part in parts]
    first, second = (shared(part, hidden) for part in (*d_parts, None)[:2])
    mixture = gated_mixture(hidden, bias, fusion, parts)
    call(
        "mixture_backward", hidden, len(hidden), ctypes.byref(mixture), gradient, d_hidden, ctypes.byref(first),
        ctypes.byref(second), d_bias,
    )  # fmt: skip
    return d_bias, [part.to(hidden.dtype) for part in d_parts]
