"""What the custom CPU kernels compute, for tensors.

A grid is `[B, S, T, features]`, contiguous; a sequence `[B, L, features]` counts as a grid with one source position.
Features come in multiples of 16. Attention has heads of E/H features, likewise a multiple of 16.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from jointnmt.ops.native import library
from jointnmt.ops.native.calls import LANES, TYPES, Steps, call, exact, multiplies, rows_of, shared
from jointnmt.ops.native.functions import (
    AttentionFunction,
    CrossEntropyFunction,
    FeedForwardFunction,
    MixtureFunction,
    ProjectedSumFunction,
    ProjectionFunction,
    ReductionFunction,
    ResidualNormFunction,
    ShortcutAttentionFunction,
    attended,
    residual_normed,
)
from jointnmt.ops.native.memory import pool

MANY_ROWS = 256
"""Enough of them make it pay to pack the weights of a product anew."""


def usable(x: Tensor, *features: int) -> bool:
    """Whether there are kernels for tensors like `x`, and for vectors of these numbers of features.

    Under autocast, `x` must be in its type already, as the results of the matrix products beside it will be. What has
    no memory of its own, as while PyTorch compiles, is left to PyTorch.
    """
    if torch.is_autocast_enabled("cpu") and x.dtype != torch.get_autocast_dtype("cpu"):
        return False
    for size in features:
        if size % LANES:
            return False
    return readable(x)


def readable(x: Tensor) -> bool:
    """Whether there are kernels, and they can read `x`."""
    return (
        x.device.type == "cpu"
        and type(x) in (Tensor, torch.nn.Parameter)
        and not torch.compiler.is_compiling()
        and x.dtype in TYPES
        and library() is not None
    )


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of this shape in the type of `like`, beside it; on the CPU in memory that is lent again when freed."""
    return pool.empty(shape, like.dtype) if like.device.type == "cpu" else like.new_empty(shape)


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
    geometry = num_heads, axis, causal
    if not torch.is_grad_enabled():
        return attended(exact(bias), geometry, lengths, noise, projected)[0]
    result: Tensor = AttentionFunction.apply(exact(bias), geometry, lengths, noise, *projected)
    return result


def shortcut_attention(
    projected: Float[Tensor, "B *places _"],
    gate_bias: Float[Tensor, " EE"],
    fusion: bool,
    parts: Sequence[Float[Tensor, "B *_ F"]],
    num_heads: int,
    axis: int,
    lengths: Int[Tensor, " B"] | None,
    causal: bool,
    noise: Float[Tensor, ...] | None = None,
) -> Float[Tensor, "B *places E"]:
    """`attention` whose keys and values are the `mixture` of what follows the queries in `projected`."""
    result: Tensor = ShortcutAttentionFunction.apply(
        projected, exact(gate_bias), fusion, (num_heads, axis, causal), lengths, noise, *parts
    )
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
    result = empty(query.shape, query)
    steps = Steps(
        sentences, math.prod(lines), rows, num_heads, embed_dim // num_heads, kept.shape[-2],
        None if slots is None else slots.data_ptr(), 0 if slots is None else slots.shape[1],
        None if lengths is None else lengths.data_ptr(),
    )  # fmt: skip
    call("attend_to_slots", query, ctypes.byref(steps), flat, flat.stride(0), kept, result)
    return result


def residual_norm(
    x: Float[Tensor, "B *places E"],
    update: Float[Tensor, "B *places E"] | None,
    update_bias: Float[Tensor, " E"] | None,
    noise: Float[Tensor, ...] | None,
    norm: torch.nn.LayerNorm | None,
) -> tuple[Float[Tensor, "B *places E"], Float[Tensor, "B *places E"] | None]:
    """`x + noise * (update + update_bias)`, or x without an update; and its layer norm, if there is a `norm`."""
    x = x.contiguous()
    weight, bias = (None, None) if norm is None else (exact(norm.weight), exact(norm.bias))
    if not torch.is_grad_enabled():
        return residual_normed(x, update, exact(update_bias), noise, weight, bias, wants_statistics=False)[:2]
    added, normed, statistics = ResidualNormFunction.apply(x, update, exact(update_bias), noise, weight, bias)
    total = x if update is None else added
    if normed is not None:
        normed.norm_of = total, statistics, weight, bias  # see `_origin`
    return total, normed


def _origin(x: Tensor) -> tuple[Tensor, ...]:
    """If x is a layer norm, what it was made of: products make it again and need not keep it."""
    origin: tuple[Tensor, ...] = getattr(x, "norm_of", ())
    return origin


def multiply(
    x: Float[Tensor, "*places E"], weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None = None
) -> Float[Tensor, "*places F"]:
    """`x weight^T + bias`, in the type of x."""
    if not (torch.is_grad_enabled() or _is_worth_packing(x, weight)):
        return functional.linear(x, weight, bias)  # mixed precision keeps weights that it has converted
    result: Tensor = ProjectionFunction.apply(x, weight, exact(bias), *_origin(x))
    return result


def _is_worth_packing(x: Tensor, weight: Tensor) -> bool:
    """Without gradient: whether products of our own, which pack their weights anew each time, are the faster ones."""
    return rows_of(x)[0] >= MANY_ROWS and multiplies(x, *weight.shape)


def project(
    x: Float[Tensor, "*places E"], linear: torch.nn.Module, bias: Float[Tensor, " F"] | None = None
) -> Float[Tensor, "*places F"]:
    """What the weights of a linear layer (PyTorch's, or one for decoding) make of x, plus this `bias`."""
    if isinstance(linear, torch.nn.Linear):
        return multiply(x, linear.weight, bias)
    result: Tensor = linear.multiply(x, bias)  # type: ignore[operator]
    return result


def projected_sum(
    centred: Float[Tensor, "B L E"], projected: Float[Tensor, "B L F"], source_length: int
) -> Float[Tensor, "B S T F"]:
    """For cells that are the sum of a source's and a target's row: the sum of what was `projected` of both, divided by
    the sum's deviation, `sqrt(var + 1e-5)`. L is S + T. Rows have mean 0 in `centred`, which is float32; the first S =
    `source_length` of them are the source's. E and F are multiples of 16."""
    assert centred.dtype == torch.float32 and centred.shape[:2] == projected.shape[:2]
    result: Tensor = ProjectedSumFunction.apply(centred, projected, source_length)
    return result


def feed_forward(
    x: Float[Tensor, "B *places E"],
    hidden: torch.nn.Module,
    output: torch.nn.Module,
    noise: Float[Tensor, ...] | None,
) -> Float[Tensor, "B *places E"]:
    """`(noise * max(0, x W1 + b1)) W2`, without the bias of `output`."""
    result: Tensor
    if not (isinstance(hidden, torch.nn.Linear) and isinstance(output, torch.nn.Linear)):
        result = hidden.feed_forward(x, output)  # type: ignore[operator]
        return result
    bias = exact(hidden.bias)
    if torch.is_grad_enabled() or _is_worth_packing(x, hidden.weight):
        result = FeedForwardFunction.apply(x, hidden.weight, bias, output.weight, noise, *_origin(x))
        return result
    activation = project(x, hidden).contiguous()
    factors = shared(noise, activation)
    call("bias_relu_forward", activation, *rows_of(activation), activation, bias, ctypes.byref(factors))
    return project(activation, output)


def reduction(
    x: Float[Tensor, "B S T E"], scores: Float[Tensor, "B S T E"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B T E"]:
    """The mean of x over the first `lengths` source positions, each feature weighed by its own softmax of `scores`."""
    result: Tensor = ReductionFunction.apply(x, scores, lengths)
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
    loss, nll = CrossEntropyFunction.apply(logits, gold.long(), weights, smoothing)
    return loss, nll


def mixture(
    hidden: Float[Tensor, "B *places F"],
    bias: Float[Tensor, " EE"],
    fusion: bool,
    parts: Sequence[Float[Tensor, "B *_ F"]],
    wants_gates: bool,
) -> tuple[Float[Tensor, "B *places EE"], Float[Tensor, "B *places EE"] | None]:
    """What a lexical shortcut makes of its hidden input and of the sum of one or two lexical parts; and its gates."""
    mixed, gates = MixtureFunction.apply(hidden, exact(bias), fusion, wants_gates, *parts)
    return mixed, gates


def log_softmax(logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
    """In float32; without gradient. A row with a number that is none has no numbers."""
    logits = logits.contiguous()
    result = pool.empty(tuple(logits.shape), torch.float32)
    call("log_softmax", logits, *rows_of(logits), logits, result)
    return result


def greatest(values: Float[Tensor, "N V"], count: int) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], bool]:
    """The `count` greatest float32 values of each row and their places, best first, of equal ones the first; and
    whether one of all values is not a number."""
    values = values.contiguous()
    best, places = values.new_empty(len(values), count), values.new_empty(len(values), count, dtype=torch.long)
    strange = call("greatest", values, *values.shape, values, count, best, places)
    return best, places, bool(strange)


def dropout_noise(shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
    """Factors of dropout in the type of `like`: 0 at this rate, else `1 / (1 - rate)`."""
    noise = like.new_empty(shape)
    seed = int(torch.randint(2**63 - 1, (), device="cpu").item())
    call("fill_noise", noise, noise.numel(), float(rate), seed, noise)
    return noise
