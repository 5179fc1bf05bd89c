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
from jointnmt.ops.fusing import is_fusable
from jointnmt.ops.native.calls import broadcast_to, call, empty, exact, is_sequence_or_grid, rows_of, zeros

EPS = 1e-5
"""Epsilon of the kernels, the default of `nn.LayerNorm`."""


class Normed(NamedTuple):
    """The output of a layer norm, with what is needed to recompute it.

    `linear` and `mlp_update` save `source` for their backward pass instead of `value`, and recompute the norm there.
    """

    value: Float[Tensor, "B *places E"]
    source: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    """The norm's input, mean and inverse standard deviation of each row, and the norm's weight and bias. None: `value`
    is saved instead, as in the plain form."""


class Biased(NamedTuple):
    """The output of a sub-layer without its last bias, left to the residual connection (Megatron-LM's `skip_bias_add`).

    `add_norm` and `dropout_add` add the bias in their pass over memory. In PyTorch's matrix product it takes up to 14%
    of the time in float32, and its gradient another pass.
    """

    value: Float[Tensor, "B *places E"]
    bias: Float[Tensor, " E"] | None = None
    """The bias; None if there is none, or `value` includes it."""

    @property
    def total(self) -> Float[Tensor, "B *places E"]:
        """The output with its bias."""
        return self.value if self.bias is None else self.value + self.bias.to(self.value.dtype)


def layer_norm(x: Float[Tensor, "*places E"], norm: nn.LayerNorm) -> Float[Tensor, "*places E"]:
    """Layer norm in the dtype of `x`, computed from weight and bias of `norm`."""
    vectors = _vectors(norm, x) if uses_kernels(x, x.shape[-1]) else None
    return _layer_norm(x, norm) if vectors is None else _add_norm(x.contiguous(), None, None, None, *vectors)[1].value


def normed(x: Float[Tensor, "*places E"], norm: nn.LayerNorm) -> tuple[Float[Tensor, "*places E"], Normed]:
    """`x` and its layer norm, at the start of a residual connection: their gradients are summed in one pass."""
    if not is_fusable(norm):
        return x, Normed(norm(x))
    vectors = _vectors(norm, x) if uses_kernels(x, x.shape[-1]) else None
    if vectors is None:
        return x, Normed(_layer_norm(x, norm))
    return _add_norm(x.contiguous(), None, None, None, *vectors)


def dropout_add(
    x: Float[Tensor, "B *places E"], update: Float[Tensor, "B *places E"] | Biased, dropout: Dropout
) -> Float[Tensor, "B *places E"]:
    """`x + dropout(update)`."""
    update = _biased(update)
    if not _adds_in_one_pass(x, update, dropout):
        return dropout.add(x, update.total)
    mask = dropout.mask(update.value.shape, update.value)
    bias = exact(update.bias)
    if not torch.is_grad_enabled():
        return _forward(x, update.value, bias, mask, None, None, keeps_statistics=False)[0]
    return _DropoutAdd.apply(x, update.value, bias, mask)


def add_norm(
    x: Float[Tensor, "B *places E"],
    update: Float[Tensor, "B *places E"] | Biased,
    dropout: Dropout,
    norm: nn.LayerNorm,
) -> tuple[Float[Tensor, "B *places E"], Normed]:
    """The residual sum `x + dropout(update)`, and its layer norm, which the next sub-layer reads.

    The kernel does both in one pass over memory (flash-attn's dropout-add-layer-norm).
    """
    update = _biased(update)
    if not is_fusable(norm):
        x = dropout_add(x, update, dropout)
        return x, Normed(norm(x))
    vectors = _vectors(norm, x) if _adds_in_one_pass(x, update, dropout) else None
    if vectors is None:
        x = dropout.add(x, update.total)
        return x, Normed(_layer_norm(x, norm))
    mask = dropout.mask(update.value.shape, update.value)
    return _add_norm(x, update.value, exact(update.bias), mask, *vectors)


def _biased(update: Tensor | Biased) -> Biased:
    return update if isinstance(update, Biased) else Biased(update)


def _adds_in_one_pass(x: Tensor, update: Biased, dropout: Dropout) -> bool:
    """Whether the kernel takes these: it broadcasts only a dropout mask, and that only to a sequence or a grid."""
    fits = update.value.shape == x.shape and (update.bias is None or update.bias.shape == x.shape[-1:])
    fits = fits and (is_sequence_or_grid(x) or not dropout.active)
    return fits and uses_kernels(x, x.shape[-1], beside=[update.value])


def _vectors(norm: nn.LayerNorm, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Weight and bias of a norm that the kernel can compute: over the last axis of `x`, with both; else None."""
    if norm.eps != EPS or norm.normalized_shape != (x.shape[-1],):
        return None
    bias = norm.bias
    return None if bias is None else (exact(norm.weight), exact(bias))


def _layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    with no_autocast(x):
        weight, bias = (None if each is None else each.to(x.dtype) for each in (norm.weight, norm.bias))
        return functional.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)


def _add_norm(
    x: Tensor, update: Tensor | None, update_bias: Tensor | None, mask: Tensor | None, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Normed]:
    if not torch.is_grad_enabled():
        total, value, _ = _forward(x, update, update_bias, mask, weight, bias, keeps_statistics=False)
        assert value is not None
        return total, Normed(value)
    total, value, statistics = _AddNorm.apply(x, update, update_bias, mask, weight, bias)
    return total, Normed(value, (total, statistics, weight, bias))


def _forward(
    x: Tensor,
    update: Tensor | None,
    update_bias: Tensor | None,
    mask: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    keeps_statistics: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The residual sum `x + mask * (update + update_bias)`, or `x` without an update; its layer norm, if there is a
    weight; mean and inverse standard deviation of each row, if they are kept."""
    x = x.contiguous()
    update = None if update is None else update.contiguous()
    total = x if update is None else empty(x, *x.shape)
    value = None if weight is None else empty(x, *x.shape)
    statistics = zeros(rows_of(x)[0], 2) if keeps_statistics and weight is not None else None
    factors = broadcast_to(x, mask)
    call(
        "add_norm_forward", x, *rows_of(x), x, update, update_bias, ctypes.byref(factors), weight, bias, total, value,
        statistics,
    )  # fmt: skip
    return total, value, statistics


def norm_again(source: tuple[Tensor, ...]) -> Tensor:
    """Recompute the value of a `Normed` from its source, without gradient."""
    x, _, weight, bias = source
    value = _forward(x, None, None, None, weight, bias, keeps_statistics=False)[1]
    assert value is not None
    return value


class _DropoutAdd(torch.autograd.Function):
    """`dropout_add` in one pass. The result's gradient is also that of `x`, and of `update` without mask and bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, update: Tensor, update_bias: Tensor | None, mask: Tensor | None) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.has_bias = update_bias is not None
        return _forward(x, update, update_bias, mask, None, None, keeps_statistics=False)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        if mask is None and not ctx.has_bias:
            return gradient, gradient, None, None
        gradient = gradient.contiguous()
        d_update = empty(gradient, *gradient.shape)
        d_bias = zeros(gradient.shape[-1]) if ctx.has_bias else None
        factors = broadcast_to(gradient, mask)
        call(
            "add_norm_backward", gradient, *rows_of(gradient), None, None, ctypes.byref(factors), None, gradient, None,
            None, d_update, None, d_bias,
        )  # fmt: skip
        return gradient, d_update, d_bias, None


class _AddNorm(torch.autograd.Function):
    """`add_norm` in one pass; without an update, the layer norm of `x`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        update: Tensor | None,
        update_bias: Tensor | None,
        mask: Tensor | None,
        weight: Tensor,
        bias: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        total, value, statistics = _forward(x, update, update_bias, mask, weight, bias, keeps_statistics=True)
        ctx.save_for_backward(total, statistics, mask, weight)
        ctx.has_update, ctx.has_bias = update is not None, update_bias is not None
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
        d_bias = zeros(total.shape[-1]) if ctx.has_bias else None
        factors = broadcast_to(total, mask)
        call(
            "add_norm_backward", total, *rows_of(total), total, statistics, ctypes.byref(factors), weight, d_total,
            d_value, d_x, d_update, gradients, d_bias,
        )  # fmt: skip
        return d_x, d_update, d_bias, None, *gradients.unbind()
