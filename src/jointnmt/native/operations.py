"""PyTorch functions around the kernels of our own, with their backward passes.

A grid is `[B, S, T, features]`, contiguous; a sequence `[B, L, features]` counts as a grid with one source position.
Features come in multiples of 16. Attention has heads of E/H features, likewise a multiple of 16.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int, Int8, Int32
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from jointnmt.native import library

LANES = 16
BLOCK_ROWS = 2048
"""Rows of a product that sums over them: few enough to stay in the cache, enough to be worth a call."""
_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def usable(x: Tensor, *features: int) -> bool:
    """Whether there are kernels for tensors like `x`, and for vectors of these numbers of features.

    Under autocast, `x` must be in its type already, as the results of the matrix products beside it will be. What has
    no memory of its own, as while PyTorch compiles, is left to PyTorch.
    """
    return (
        x.device.type == "cpu"
        and type(x) in (Tensor, torch.nn.Parameter)
        and not torch.compiler.is_compiling()
        and x.dtype in _TYPES
        and (not torch.is_autocast_enabled("cpu") or x.dtype == torch.get_autocast_dtype("cpu"))
        and not any(size % LANES for size in features)
        and library() is not None
    )


def attention(
    projected: Sequence[Float[Tensor, "B *places _"]],
    bias: Float[Tensor, " EEE"] | None,
    num_heads: int,
    axis: int,
    lengths: Int[Tensor, " B"] | None,
    causal: bool,
    noise: Float[Tensor, ...] | None = None,
) -> Float[Tensor, "B *places E"]:
    """Multi-head attention along `axis`.

    Args:
        projected: queries, keys and values in one tensor of 3E features, or queries in one, keys and values in another.
        bias: of all three projections, still to be added to `projected`.
        lengths: keys of each sentence that are not padding; None: all.
        causal: whether a place sees only itself and what precedes it.
        noise: factors of the weights, broadcast to `[B, kept axis, H, L, L]`, or `[B, H, L, L]` of a sequence.
    """
    result: Tensor = _Attention.apply(_exact(bias), num_heads, axis, lengths, causal, noise, *projected)
    return result


@torch.no_grad()
def attend_to_slots(
    query: Float[Tensor, "G *lines R E"],
    kept: Float[Tensor, "G *lines C EE"],
    num_heads: int,
    slots: Int[Tensor, "N t"] | None = None,
    lengths: Int[Tensor, " G"] | None = None,
) -> Float[Tensor, "G *lines R E"]:
    """Attention of the R rows of each sentence over `kept` keys and values, for each line; without gradient.

    Args:
        query: may be the first features of a wider tensor.
        kept: keys, then values, of C slots of each line.
        slots: the slots that each of the N = G * R rows sees; None: the first `lengths` of its sentence.
    """
    sentences, *lines, rows, embed_dim = query.shape
    flat = query.view(-1, embed_dim)  # an error where rows are not at equal distances
    assert flat.stride(-1) == 1 and kept.is_contiguous() and kept.dtype == query.dtype
    slots = None if slots is None else slots.long().contiguous()
    lengths = None if lengths is None else lengths.to(torch.int32).contiguous()
    result = query.new_empty(query.shape)
    steps = _Steps(
        sentences, math.prod(lines), rows, num_heads, embed_dim // num_heads, kept.shape[-2],
        None if slots is None else slots.data_ptr(), 0 if slots is None else slots.shape[1],
        None if lengths is None else lengths.data_ptr(),
    )  # fmt: skip
    _call("attend_to_slots", query, ctypes.byref(steps), flat, flat.stride(0), kept, result)
    return result


def residual_norm(
    x: Float[Tensor, "B *places E"],
    update: Float[Tensor, "B *places E"] | None,
    update_bias: Float[Tensor, " E"] | None,
    noise: Float[Tensor, ...] | None,
    norm: torch.nn.LayerNorm | None,
) -> tuple[Float[Tensor, "B *places E"], Float[Tensor, "B *places E"] | None]:
    """`x + noise * (update + update_bias)`, or x without an update; and its layer norm, if there is a `norm`."""
    weight, bias = (None, None) if norm is None else (norm.weight, norm.bias)
    total, normed = _ResidualNorm.apply(x, update, _exact(update_bias), noise, _exact(weight), _exact(bias))
    return x if update is None else total, normed


def project(x: Float[Tensor, "*places E"], linear: torch.nn.Module) -> Float[Tensor, "*places F"]:
    """What a linear layer (a `torch.nn.Linear` or an `Int8Linear`) makes of x without its bias, in the type of x."""
    result: Tensor
    if not isinstance(linear, torch.nn.Linear):
        result = linear.multiply(x, None)  # type: ignore[operator]
    elif torch.is_grad_enabled():
        result = _Projection.apply(x, linear.weight)
    else:  # mixed precision keeps weights that it has converted, but not for a function's own
        result = functional.linear(x, linear.weight)
    return result


def feed_forward(
    x: Float[Tensor, "B *places E"],
    hidden: torch.nn.Linear,
    output: torch.nn.Linear,
    noise: Float[Tensor, ...] | None,
) -> Float[Tensor, "B *places E"]:
    """`(noise * max(0, x W1 + b1)) W2`, without the bias of `output`."""
    bias = _exact(hidden.bias)
    if not torch.is_grad_enabled():
        activation = project(x, hidden).contiguous()
        factors = _shared(noise, activation)
        _call("bias_relu_forward", activation, *_rows(activation), activation, bias, ctypes.byref(factors))
        return project(activation, output)
    result: Tensor = _FeedForward.apply(x, hidden.weight, bias, output.weight, noise)
    return result


def reduction(
    x: Float[Tensor, "B S T E"], scores: Float[Tensor, "B S T E"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B T E"]:
    """The mean of x over the first `lengths` source positions, each feature weighed by its own softmax of `scores`."""
    result: Tensor = _Reduction.apply(x, scores, lengths)
    return result


def cross_entropy(
    logits: Float[Tensor, "N V"], gold: Int[Tensor, " N"], weights: Float[Tensor, " N"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"]]:
    """The weighted sum of label-smoothed losses; and each row's plain negative log-likelihood, without gradient.

    Raises:
        IndexError: if a gold token is none of the vocabulary.
    """
    if not bool(((gold >= 0) & (gold < logits.shape[1])).all()):
        raise IndexError(f"gold tokens {gold.min()} to {gold.max()} of a vocabulary of {logits.shape[1]}")
    loss, nll = _CrossEntropy.apply(logits, gold.long(), weights, smoothing)
    return loss, nll


def mixture(
    hidden: Float[Tensor, "B *places F"],
    bias: Float[Tensor, " EE"],
    fusion: bool,
    parts: Sequence[Float[Tensor, "B *_ F"]],
    wants_gates: bool,
) -> tuple[Float[Tensor, "B *places EE"], Float[Tensor, "B *places EE"] | None]:
    """What a lexical shortcut makes of its hidden input and of the sum of one or two lexical parts; and its gates."""
    mixed, gates = _Mixture.apply(hidden, _exact(bias), fusion, wants_gates, *parts)
    return mixed, gates


def quantise_rows(x: Float[Tensor, "N E"]) -> tuple[Int8[Tensor, "N E"], Float[Tensor, " N"]]:
    """Each row as integers from -127 to 127, and what one of them is worth; without gradient."""
    x = x.contiguous()
    integers, scales = torch.empty_like(x, dtype=torch.int8), _floats(len(x))
    _call("quantise_rows", x, *_rows(x), x, integers, scales)
    return integers, scales


def dequantise(
    sums: Int32[Tensor, "N F"],
    row_scales: Float[Tensor, " N"],
    column_scales: Float[Tensor, " F"],
    bias: Float[Tensor, " F"] | None,
    out: Float[Tensor, "N F"],
) -> None:
    """Write `sums * row scale * column scale + bias` to `out`."""
    vectors = _exact(column_scales), _exact(bias)
    _call("dequantise", out, *_rows(out), sums, row_scales, *vectors, out)


def dropout_noise(shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
    """Factors of dropout in the type of `like`: 0 at this rate, else `1 / (1 - rate)`."""
    noise = like.new_empty(shape)
    seed = int(torch.randint(2**63 - 1, (), device="cpu").item())
    _call("fill_noise", noise, noise.numel(), ctypes.c_double(rate), ctypes.c_uint64(seed), noise)
    return noise


def _exact(vector: Tensor | None) -> Tensor | None:
    """A bias or weight as the kernels read it; they share it among all rows, so it is float32 whatever the model is."""
    return None if vector is None else vector.float().contiguous()


def _floats(*shape: int) -> Tensor:
    """Zeros that a kernel adds up or overwrites; whatever PyTorch's default type and device are."""
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


class _Lines(ctypes.Structure):
    """The kernels' `Lines`: where attention's lines lie."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("batch", "lines", "length", "plane", "between", "step", "heads", "size")),
        ("lengths", ctypes.c_void_p),
        ("causal", ctypes.c_int),
        ("noise", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("noise_batch", "noise_line", "noise_head")),
    ]


class _Steps(ctypes.Structure):
    """The kernels' `Steps`: who sees which slots."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("sentences", "lines", "rows", "heads", "size", "capacity")),
        ("slots", ctypes.c_void_p),
        ("seen", ctypes.c_long),
        ("lengths", ctypes.c_void_p),
    ]


class _Shared(ctypes.Structure):
    """The kernels' `Shared`: a tensor and how the cells of a grid share it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("s", "t", "by_b", "by_s", "by_t")),
    ]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        bias: Tensor | None,
        num_heads: int,
        axis: int,
        lengths: Tensor | None,
        causal: bool,
        noise: Tensor | None,
        *projected: Tensor,
    ) -> Tensor:
        projected = tuple(part.contiguous() for part in projected)
        lengths = None if lengths is None else lengths.to(torch.int32).contiguous()
        if noise is not None:  # queries and keys lie as the kernels read them
            length = projected[0].shape[axis]
            noise = noise.float().expand(*noise.shape[:-2], length, length).contiguous()
        ctx.save_for_backward(bias, lengths, noise, *projected)
        ctx.geometry = num_heads, axis, causal
        like = projected[0]
        embed_dim = sum(part.shape[-1] for part in projected) // 3
        result = like.new_empty(*like.shape[:-1], embed_dim)
        lines = _lines(like, embed_dim, ctx.geometry, lengths, noise)
        _call("attention_forward", result, ctypes.byref(lines), *_roles(projected, embed_dim), bias, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        bias, lengths, noise, *projected = ctx.saved_tensors
        gradient = gradient.contiguous()
        embed_dim = gradient.shape[-1]
        lines = _lines(projected[0], embed_dim, ctx.geometry, lengths, noise)
        results = [torch.empty_like(part) for part in projected]
        d_bias = None if bias is None else torch.zeros_like(bias)
        query, key, value, _, _ = _roles(results, embed_dim)
        roles = _roles(projected, embed_dim)
        _call("attention_backward", gradient, ctypes.byref(lines), *roles, bias, gradient, query, key, value, d_bias)
        return d_bias, None, None, None, None, None, *results


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        update: Tensor | None,
        update_bias: Tensor | None,
        noise: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        x = x.contiguous()
        update = None if update is None else update.contiguous()
        total = x if update is None else torch.empty_like(x)
        normed = None if weight is None else torch.empty_like(x)
        statistics = None if weight is None else _floats(_rows(x)[0], 2)
        factors = _shared(noise, x)
        _call(
            "residual_norm_forward", x, *_rows(x), x, update, update_bias, ctypes.byref(factors), weight, bias,
            total, normed, statistics,
        )  # fmt: skip
        ctx.save_for_backward(total, statistics, noise, weight)
        ctx.has_update, ctx.has_update_bias = update is not None, update_bias is not None
        return None if update is None else total, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor | None, d_normed: Tensor | None) -> tuple[Tensor | None, ...]:
        total, statistics, noise, weight = ctx.saved_tensors
        d_total = None if d_total is None else d_total.contiguous()
        d_normed = None if d_normed is None else d_normed.contiguous()
        d_x = torch.empty_like(total)
        d_update = torch.empty_like(total) if ctx.has_update else None
        gradients = _floats(3, total.shape[-1])
        factors = _shared(noise, total)
        _call(
            "residual_norm_backward", total, *_rows(total), total, statistics, ctypes.byref(factors), weight, d_total,
            d_normed, d_x, d_update, gradients,
        )  # fmt: skip
        of_norm = (None, None) if weight is None else gradients[:2].unbind()
        return d_x, d_update, gradients[2] if ctx.has_update_bias else None, None, *of_norm


class _Projection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        own_weight = weight.to(x.dtype)
        ctx.save_for_backward(x, own_weight)
        ctx.weight_type = weight.dtype
        return torch.mm(x.flatten(0, -2), own_weight.t()).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        d_weight = _weight_gradient(rows, x.flatten(0, -2), ctx.weight_type)
        return torch.mm(rows, weight).view(x.shape), d_weight


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, hidden_weight: Tensor, hidden_bias: Tensor, output_weight: Tensor, noise: Tensor | None
    ) -> Tensor:
        ctx.weight_type = hidden_weight.dtype
        hidden_weight, output_weight = hidden_weight.to(x.dtype), output_weight.to(x.dtype)
        hidden = torch.mm(x.flatten(0, -2), hidden_weight.t())
        grid = hidden.view(*x.shape[:-1], hidden.shape[-1])
        factors = _shared(noise, grid)
        _call("bias_relu_forward", hidden, *_rows(hidden), hidden, hidden_bias, ctypes.byref(factors))
        ctx.save_for_backward(x, hidden, hidden_weight, output_weight, noise)
        return torch.mm(hidden, output_weight.t()).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, hidden_weight, output_weight, noise = ctx.saved_tensors
        rows, gradient = x.flatten(0, -2), gradient.flatten(0, -2)
        d_output_weight = _weight_gradient(gradient, hidden, ctx.weight_type)
        d_hidden = torch.mm(gradient, output_weight)
        d_bias = _floats(d_hidden.shape[-1])
        factors = _shared(noise, d_hidden.view(*x.shape[:-1], d_hidden.shape[-1]))
        _call("bias_relu_backward", hidden, *_rows(hidden), hidden, d_hidden, ctypes.byref(factors), d_bias)
        d_hidden_weight = _weight_gradient(d_hidden, rows, ctx.weight_type)
        return torch.mm(d_hidden, hidden_weight).view(x.shape), d_hidden_weight, d_bias, d_output_weight, None


def _weight_gradient(gradient: Tensor, x: Tensor, kind: torch.dtype) -> Tensor:
    """`gradient^T x`, over blocks of rows: the library's product over many rows does not keep them in the cache."""
    if len(x) <= 2 * BLOCK_ROWS:
        return torch.mm(gradient.t(), x).to(kind)
    total = _floats(gradient.shape[1], x.shape[1])
    for rows, of_x in zip(gradient.split(BLOCK_ROWS), x.split(BLOCK_ROWS), strict=True):
        total += torch.mm(rows.t(), of_x)
    return total.to(kind)


class _Reduction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
        x, scores, lengths = x.contiguous(), scores.contiguous(), lengths.to(torch.int32).contiguous()
        ctx.save_for_backward(x, scores, lengths)
        result = x.new_empty(x.shape[0], *x.shape[2:])
        _call("reduction_forward", x, *x.shape, lengths, x, scores, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scores, lengths = ctx.saved_tensors
        d_x, d_scores = torch.empty_like(x), torch.empty_like(scores)
        _call("reduction_backward", x, *x.shape, lengths, x, scores, gradient.contiguous(), d_x, d_scores)
        return d_x, d_scores, None


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, weights: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        logits, gold = logits.contiguous(), gold.contiguous()
        statistics = _floats(len(gold), 3)
        _call("cross_entropy_forward", logits, *logits.shape, logits, gold, statistics)
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
        result = torch.empty_like(logits)
        _call(
            "cross_entropy_backward", logits, *logits.shape, logits, gold, statistics, weights * gradient,
            ctypes.c_double(ctx.smoothing), result,
        )  # fmt: skip
        return result, None, None, None


class _GatedMixture(ctypes.Structure):
    """The kernels' `Mixture`."""

    _fields_ = [
        ("hidden", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("first", _Shared),
        ("second", _Shared),
        ("width", ctypes.c_long),
        ("fusion", ctypes.c_int),
    ]


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, bias: Tensor, fusion: bool, wants_gates: bool, *parts: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        hidden, parts = hidden.contiguous(), tuple(part.contiguous() for part in parts)
        ctx.save_for_backward(hidden, bias, *parts)
        ctx.fusion = fusion
        mixed = hidden.new_empty(*hidden.shape[:-1], len(bias))
        gates = torch.empty_like(mixed) if wants_gates else None
        mixture = _gated_mixture(hidden, bias, fusion, parts)
        _call("mixture_forward", hidden, _rows(hidden)[0], ctypes.byref(mixture), mixed, gates)
        if gates is not None:
            ctx.mark_non_differentiable(gates)
        return mixed, gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        hidden, bias, *parts = ctx.saved_tensors
        d_hidden, d_bias = torch.empty_like(hidden), torch.zeros_like(bias)
        d_parts = [_floats(*part.shape) for part in parts]
        shared = [_shared(part, hidden) for part in (*d_parts, None)]
        mixture = _gated_mixture(hidden, bias, ctx.fusion, parts)
        _call(
            "mixture_backward", hidden, len(hidden), ctypes.byref(mixture), gradient.contiguous(), d_hidden,
            ctypes.byref(shared[0]), ctypes.byref(shared[1]), d_bias,
        )  # fmt: skip
        return d_hidden, d_bias, None, None, *(part.to(hidden.dtype) for part in d_parts)


def _gated_mixture(hidden: Tensor, bias: Tensor, fusion: bool, parts: Sequence[Tensor]) -> _GatedMixture:
    first, second = (_shared(part, hidden) for part in (*parts, None)[:2])
    return _GatedMixture(hidden.data_ptr(), bias.data_ptr(), first, second, len(bias), fusion)


def _call(name: str, like: Tensor, *arguments: Any) -> None:
    """Call a kernel for the type of `like`, with as many threads as PyTorch uses."""
    kernels = library()
    assert kernels is not None
    plain = (_plain(argument) for argument in arguments)
    getattr(kernels, f"{name}_{_TYPES[like.dtype]}")(*plain, torch.get_num_threads())


def _plain(argument: Any) -> Any:
    """As ctypes takes it without asking what the kernel wants."""
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if argument is None:
        return ctypes.c_void_p(None)
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _rows(x: Tensor) -> tuple[int, int]:
    return x.numel() // x.shape[-1], x.shape[-1]


def _shared(x: Tensor | None, grid: Tensor) -> _Shared:
    """How the cells of `grid` share `x`, which is broadcast to its shape."""
    if x is None:
        return _Shared(None, 1, 1, 0, 0, 0)
    x = x.expand(grid.shape)
    if grid.ndim == 3:
        x = x[:, None]
    assert x.stride(-1) == 1 or not x.numel()
    return _Shared(x.data_ptr(), *x.shape[1:3], *x.stride()[:3])


def _lines(
    like: Tensor, embed_dim: int, geometry: tuple[int, int, bool], lengths: Tensor | None, noise: Tensor | None
) -> _Lines:
    num_heads, axis, causal = geometry
    s, t = (1, like.shape[1]) if like.ndim == 3 else like.shape[1:3]
    along_target = like.ndim == 3 or axis == 2
    lines, length, between, step = (s, t, t, 1) if along_target else (t, s, 1, t)
    strides = [0, 0, 0]
    if noise is not None:
        kept = (lines,) if like.ndim == 4 else ()
        noise = noise.expand(like.shape[0], *kept, num_heads, length, length)
        strides = [noise.stride(0), noise.stride(1) if kept else 0, noise.stride(-3)]
    return _Lines(
        like.shape[0], lines, length, s * t, between, step, num_heads, embed_dim // num_heads,
        None if lengths is None else lengths.data_ptr(), causal, None if noise is None else noise.data_ptr(), *strides,
    )  # fmt: skip


def _roles(parts: Sequence[Tensor], embed_dim: int) -> tuple[Any, ...]:
    """Queries, keys and values of the first cell, and the distances from a cell's queries and keys to the next's."""
    query, key_value = parts[0], parts[-1]
    size = query.element_size()
    keys = key_value.data_ptr() + (embed_dim * size if len(parts) == 1 else 0)
    pointers = (query.data_ptr(), keys, keys + embed_dim * size)
    return *map(ctypes.c_void_p, pointers), query.shape[-1], key_value.shape[-1]
