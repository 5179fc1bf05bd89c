"""Layer norm, and its fusion with the residual connection before it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from jointnmt.ops.autocast import no_autocast
from jointnmt.ops.backend import uses_kernels
from jointnmt.ops.dropout import Dropout
from jointnmt.ops.native.calls import broadcast_to, call, empty, exact, rows_of, zeros


class Normed(NamedTuple):
    """A layer norm as the products that read it (`linear`, `mlp`) take it.

    With gradient, these keep `source` and compute the norm again in the backward pass, so that nobody keeps `value`.
    """

    value: Float[Tensor, "B *places E"]
    source: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    """What the norm is of, mean and inverse deviation of each row, and the norm's weight and bias; None: keep `value`,
    as the plain form does."""


def layer_norm(x: Float[Tensor, "*places E"], norm: nn.LayerNorm) -> Float[Tensor, "*places E"]:
    """Layer norm in the type of `x`."""
    return normed(x, norm)[1].value


def normed(x: Float[Tensor, "*places E"], norm: nn.LayerNorm) -> tuple[Float[Tensor, "*places E"], Normed]:
    """`x` itself and its layer norm, for a residual connection: the gradients of both are summed in one pass."""
    if not uses_kernels(x, x.shape[-1]):
        return x, Normed(_layer_norm(x, norm))
    return _add_norm(x.contiguous(), None, None, norm)


def dropout_add(
    x: Float[Tensor, "B *places E"], update: Float[Tensor, "B *places E"], dropout: Dropout
) -> Float[Tensor, "B *places E"]:
    """`x + dropout(update)`."""
    if not uses_kernels(x, x.shape[-1]):
        return dropout.add(x, update)
    mask = dropout.mask(update.shape, update)
    if not torch.is_grad_enabled():
        return _forward(x, update, mask, None, None, keeps_statistics=False)[0]
    total: Tensor = _DropoutAdd.apply(x, update, mask)
    return total


def add_norm(
    x: Float[Tensor, "B *places E"], update: Float[Tensor, "B *places E"], dropout: Dropout, norm: nn.LayerNorm
) -> tuple[Float[Tensor, "B *places E"], Normed]:
    """The residual connection `x + dropout(update)`, and the layer norm of it that the next sub-layer reads.

    The kernel does both in one pass over memory (flash-attn's dropout-add-layer-norm).
    """
    if not uses_kernels(x, x.shape[-1]):
        x = dropout.add(x, update)
        return x, Normed(_layer_norm(x, norm))
    return _add_norm(x, update, dropout.mask(update.shape, update), norm)


def _layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    with no_autocast(x):
        weight, bias = norm.weight.to(x.dtype), norm.bias.to(x.dtype)
        return functional.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)


def _add_norm(x: Tensor, update: Tensor | None, mask: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Normed]:
    weight, bias = exact(norm.weight), exact(norm.bias)
    if not torch.is_grad_enabled():
        total, value, _ = _forward(x, update, mask, weight, bias, keeps_statistics=False)
        assert value is not None
        return total, Normed(value)
    total, value, statistics = _AddNorm.apply(x, update, mask, weight, bias)
    return total, Normed(value, (total, statistics, weight, bias))


def _forward(
    x: Tensor,
    update: Tensor | None,
    mask: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    keeps_statistics: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`x + mask * update`, or x; its layer norm, if there is a weight; mean and inverse deviation of each row."""
    x = x.contiguous()
    update = None if update is None else update.contiguous()
    total = x if update is None else empty(x, *x.shape)
    value = None if weight is None else empty(x, *x.shape)
    statistics = zeros(rows_of(x)[0], 2) if keeps_statistics and weight is not None else None
    factors = broadcast_to(x, mask)
    call(
        "add_norm_forward", x, *rows_of(x), x, update, ctypes.byref(factors), weight, bias, total, value, statistics
    )  # fmt: skip
    return total, value, statistics


def norm_again(source: tuple[Tensor, ...]) -> Tensor:
    """The value of a `Normed` with this source, computed again; without gradient."""
    x, _, weight, bias = source
    value = _forward(x, None, None, weight, bias, keeps_statistics=False)[1]
    assert value is not None
    return value


class _DropoutAdd(torch.autograd.Function):
    """In one pass, with a gradient of the update only where there is a mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, update: Tensor, mask: Tensor | None) -> Tensor:
        ctx.save_for_backward(mask)
        return _forward(x, update, mask, None, None, keeps_statistics=False)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        if mask is None:
            return gradient, gradient, None
        return gradient, torch.mul(gradient, mask, out=empty(gradient, *gradient.shape)), None


class _AddNorm(torch.autograd.Function):
    """In one pass; without an update, of x itself."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, update: Tensor | None, mask: Tensor | None, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        total, value, statistics = _forward(x, update, mask, weight, bias, keeps_statistics=True)
        ctx.save_for_backward(total, statistics, mask, weight)
        ctx.has_update = update is not None
        ctx.mark_non_differentiable(statistics)
        return total, value, statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor | None, d_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        total, statistics, mask, weight = ctx.saved_tensors
        d_total = None if d_total is None else d_total.contiguous()
        d_value = None if d_value is None else d_value.contiguous()
        d_x = empty(total, *total.shape)
        d_update = empty(total, *total.shape) if ctx.has_update else None
        gradients = zeros(2, total.shape[-1])
        factors = broadcast_to(total, mask)
        call(
            "add_norm_backward", total, *rows_of(total), total, statistics, ctypes.byref(factors), weight, d_total,
            d_value, d_x, d_update, gradients,
        )  # fmt: skip
        return d_x, d_update, None, *gradients.unbind()
