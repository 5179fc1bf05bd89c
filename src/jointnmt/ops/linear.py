"""Matrix products with weights: linear layers and feed-forward blocks."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from jointnmt.ops.backend import uses_kernels, uses_own_gemm
from jointnmt.ops.dropout import Dropout
from jointnmt.ops.fusing import is_fusable, takes_normed
from jointnmt.ops.native.calls import (
    broadcast_to,
    call,
    empty,
    exact,
    is_sequence_or_grid,
    rows_of,
    rows_or_norm,
    zeros,
)
from jointnmt.ops.native.packed import PackedLinear
from jointnmt.ops.norm import Biased, Normed, norm_again

BLOCK_ROWS = 2048
"""Rows per block in the gradient of a weight: few enough for the cache, and enough to be worth a call."""
MANY_ROWS = 256
"""Number of rows from which packing the weights for a single product pays."""


def linear(
    x: Float[Tensor, "*places E"] | Normed, weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None = None
) -> Float[Tensor, "*places F"]:
    """`x weight^T + bias`, in the dtype of `x`; the backward pass may recompute the norm of a `Normed`."""
    x, source = _value_and_source(x, weight)
    # Without gradient, PyTorch's linear for few rows: autocast caches the weights that it has cast.
    own = uses_kernels(x, *weight.shape) and (torch.is_grad_enabled() or _packs_weights(x, weight))
    if not own or x.shape[-1] != weight.shape[1] or (bias is not None and len(bias) != len(weight)):
        return functional.linear(x, weight, bias)
    return _Linear.apply(x, weight, None if bias is None else exact(bias), *source)


def linear_update(x: Float[Tensor, "B *places E"], layer: nn.Module) -> Biased:
    """`layer(x)` for a residual connection; the bias is left to that where PyTorch computes the product."""
    if isinstance(layer, nn.Linear) and is_fusable(layer) and _leaves_bias(x, layer.weight):
        return Biased(linear(x, layer.weight), layer.bias)
    return Biased(layer(x))


def mlp_update(
    x: Float[Tensor, "B *places E"] | Normed, hidden: nn.Module, output: nn.Module, dropout: Dropout
) -> Biased:
    """`dropout(max(0, x W1 + b1)) W2 + b2` for a residual connection: the feed-forward block (Li et al. 2020, Eq. 3).

    The residual connection adds b2 where PyTorch computes the product.

    Args:
        x: input, as for `linear`.
        hidden: layer of W1 `[F, E]` and b1; either layer may be packed for inference.
        output: layer of W2 `[E, F]` and b2.
        dropout: applied to the hidden layer.
    """
    value = x.value if isinstance(x, Normed) else x
    fusable = is_fusable(hidden) and is_fusable(output)
    if fusable and isinstance(hidden, PackedLinear) and isinstance(output, PackedLinear):
        return Biased(hidden.mlp(value, output))
    if not (fusable and _is_block(value, hidden, output, dropout)):
        return Biased(output(dropout(functional.relu(apply_linear(hidden, x)))))
    assert isinstance(hidden, nn.Linear) and isinstance(output, nn.Linear)
    mask = dropout.mask((*value.shape[:-1], hidden.out_features), value)
    bias = exact(hidden.bias)
    added, left = (None, output.bias) if _leaves_bias(value, hidden.weight) else (exact(output.bias), None)
    if torch.is_grad_enabled() or _packs_weights(value, hidden.weight):
        source = _value_and_source(x, hidden.weight)[1]
        return Biased(_MLP.apply(value, hidden.weight, bias, output.weight, added, mask, *source), left)
    activation = functional.linear(value, hidden.weight)
    factors = broadcast_to(activation, mask)
    call("bias_relu_forward", activation, *rows_of(activation), activation, bias, ctypes.byref(factors))
    return Biased(functional.linear(activation, output.weight), left)


def apply_linear(layer: nn.Module, x: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places F"]:
    """`layer(x)`, or `layer(x.value)` for a layer that does not accept a `Normed`."""
    return layer(x.value if isinstance(x, Normed) and not takes_normed(layer) else x)


def _value_and_source(x: Tensor | Normed, weight: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The value of `x`, and the source to recompute it from in the backward pass; empty if the value is to be saved.

    With PyTorch's products, recomputing a norm is an extra pass (2% of a Transformer's update), which pays only on
    grids, by the memory saved.
    """
    if not isinstance(x, Normed):
        return x, ()
    recomputed = x.source is not None and (x.value.ndim == 4 or uses_own_gemm(x.value, *weight.shape))
    return x.value, (x.source or ()) if recomputed else ()


def _is_block(x: Tensor, hidden: nn.Module, output: nn.Module, dropout: Dropout) -> bool:
    """Whether the kernels can compute this feed-forward block of `x`, from E features to F and back."""
    if not (isinstance(hidden, nn.Linear) and isinstance(output, nn.Linear)) or hidden.bias is None:
        return False
    fits = hidden.in_features == output.out_features == x.shape[-1] and hidden.out_features == output.in_features
    fits = fits and (is_sequence_or_grid(x) or not dropout.active)  # a dropout mask is broadcast
    return fits and uses_kernels(x, hidden.in_features, hidden.out_features)


def _packs_weights(x: Tensor, weight: Tensor) -> bool:
    """Whether to use the custom products, which pack the weights at each call: without gradient, only for many rows."""
    return uses_own_gemm(x, *weight.shape) and (torch.is_grad_enabled() or rows_of(x)[0] >= MANY_ROWS)


def _leaves_bias(x: Tensor, weight: Tensor) -> bool:
    """Whether the residual connection should add the bias; the custom products add it for free."""
    return uses_kernels(x, *weight.shape) and not _packs_weights(x, weight)


class _Linear(torch.autograd.Function):
    """A linear layer with custom products, weight gradients summed in blocks of rows, and norms recomputed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *source: Tensor) -> Tensor:
        """`source` is the source of the `Normed` with value `x`; empty if `x` is to be saved."""
        own_weight = weight.to(x.dtype).contiguous()
        x = x.contiguous()
        ctx.save_for_backward(own_weight, *(source or (x,)))
        ctx.weight_type, ctx.has_bias = weight.dtype, bias is not None
        ctx.own_gemm = uses_own_gemm(x, *own_weight.shape)
        if not ctx.own_gemm:
            return _product(x, own_weight.t(), bias)
        result = empty(x, *x.shape[:-1], len(weight))
        call("linear_forward", x, *rows_of(x), len(weight), x, own_weight, bias, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, x, *norm = ctx.saved_tensors
        rows = _rows(gradient)
        nothing = [None] * (1 + len(norm) if norm else 0)
        if not ctx.own_gemm:
            d_weight = _weight_gradient(rows, _rows(x, norm), ctx.weight_type)
            d_bias = _column_sums(rows) if ctx.has_bias else None
            return _product(gradient, weight), d_weight, d_bias, *nothing
        d_x, d_weight, d_bias = empty(x, *x.shape), zeros(*weight.shape), zeros(len(weight)) if ctx.has_bias else None
        call(
            "linear_backward", x, *rows_of(x), len(weight), ctypes.byref(rows_or_norm(x, norm)), weight,
            rows.contiguous(), d_x, d_weight, d_bias,
        )  # fmt: skip
        return d_x, d_weight.to(ctx.weight_type), d_bias, *nothing


class _MLP(torch.autograd.Function):
    """A feed-forward block computed like `_Linear`; bias, ReLU and dropout in one pass; no ReLU mask is saved."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        output_weight: Tensor,
        output_bias: Tensor | None,
        mask: Tensor | None,
        *source: Tensor,
    ) -> Tensor:
        """`output_bias` is None where PyTorch computes the products. See `_Linear` for `source`."""
        ctx.weight_type, ctx.has_bias = hidden_weight.dtype, output_bias is not None
        weights = hidden_weight.to(x.dtype).contiguous(), output_weight.to(x.dtype).contiguous()
        x = x.contiguous()
        ctx.own_gemm = uses_own_gemm(x, *hidden_weight.shape)
        if ctx.own_gemm:
            hidden, result = empty(x, *x.shape[:-1], len(hidden_weight)), empty(x, *x.shape)
            factors = broadcast_to(hidden, mask)
            call(
                "mlp_forward", x, *rows_of(x), len(hidden_weight), x, weights[0], hidden_bias, ctypes.byref(factors),
                weights[1], output_bias, hidden, result,
            )  # fmt: skip
        else:
            hidden = _product(x, weights[0].t())
            factors = broadcast_to(hidden, mask)
            call("bias_relu_forward", hidden, *rows_of(hidden), hidden, hidden_bias, ctypes.byref(factors))
            result = _product(hidden, weights[1].t())
        ctx.save_for_backward(hidden, *weights, mask, *(source or (x,)))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, hidden_weight, output_weight, mask, x, *norm = ctx.saved_tensors
        gradient, kind = gradient.contiguous(), ctx.weight_type
        d_bias, factors = zeros(hidden.shape[-1]), broadcast_to(hidden, mask)
        nothing = [None] * (2 + len(norm) if norm else 1)
        if ctx.own_gemm:
            d_x, d_first, d_second = empty(x, *x.shape), zeros(*hidden_weight.shape), zeros(*output_weight.shape)
            d_output_bias = zeros(x.shape[-1])  # the kernel sums it in any case
            call(
                "mlp_backward", x, *rows_of(x), hidden.shape[-1], ctypes.byref(rows_or_norm(x, norm)), hidden,
                hidden_weight, ctypes.byref(factors), output_weight, gradient, d_x, d_first, d_bias, d_second,
                d_output_bias,
            )  # fmt: skip
            return d_x, d_first.to(kind), d_bias, d_second.to(kind), d_output_bias if ctx.has_bias else None, *nothing
        rows = _rows(gradient)
        d_second = _weight_gradient(rows, _rows(hidden), kind)
        d_hidden = _product(gradient, output_weight)
        call("bias_relu_backward", hidden, *rows_of(hidden), hidden, d_hidden, ctypes.byref(factors), d_bias)
        d_first = _weight_gradient(_rows(d_hidden), _rows(x, norm), kind)
        return _product(d_hidden, hidden_weight), d_first, d_bias, d_second, None, *nothing


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """PyTorch's matrix product, into memory of the caching allocator."""
    result = empty(x, *x.shape[:-1], weight.shape[1])
    rows, out = _rows(x), result.view(-1, weight.shape[1])
    if bias is None:
        torch.mm(rows, weight, out=out)
    else:
        torch.addmm(bias.to(x.dtype), rows, weight, out=out)
    return result


def _column_sums(rows: Tensor) -> Tensor:
    """Sum over rows, in float32; a matrix-vector product is faster than `sum` over many rows."""
    if rows.dtype != torch.float32:
        return rows.sum(0, dtype=torch.float32)
    return torch.mv(rows.t(), rows.new_ones(len(rows)))


def _rows(x: Tensor, norm: Sequence[Tensor] = ()) -> Tensor:
    """Rows of `x`, or of its layer norm if `norm` has statistics, weight and bias."""
    return (norm_again((x, *norm)) if norm else x).reshape(-1, x.shape[-1])


def _weight_gradient(gradient: Tensor, x: Tensor, kind: torch.dtype) -> Tensor:
    """`gradient^T x`, summed over blocks of rows that fit into the cache; PyTorch's product is slower for many rows."""
    if len(x) <= 2 * BLOCK_ROWS:
        return torch.mm(gradient.t(), x).to(kind)
    total = zeros(gradient.shape[1], x.shape[1])
    for rows, of_x in zip(gradient.split(BLOCK_ROWS), x.split(BLOCK_ROWS), strict=True):
        total += torch.mm(rows.t(), of_x)
    return total.to(kind)
