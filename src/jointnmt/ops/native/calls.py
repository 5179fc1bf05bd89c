"""Calling the compiled kernels: arguments, layouts, and their C structures."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from jointnmt.ops.native import library, recording

LANES = 16
NO_MEMORY = -1
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


@overload
def exact(vector: Tensor) -> Tensor: ...
@overload
def exact(vector: None) -> None: ...
def exact(vector: Tensor | None) -> Tensor | None:
    """A bias or weight as the kernels read it: contiguous and in float32, whatever the dtype of the model."""
    if vector is None or (vector.dtype == torch.float32 and vector.is_contiguous()):
        return vector
    return vector.float().contiguous()


def zeros(*shape: int) -> Tensor:
    """Zeros for a kernel to add to, in float32 on the CPU, whatever PyTorch's default dtype and device."""
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def empty(like: Tensor, *shape: int) -> Tensor:
    """An uninitialised result tensor for a kernel, in the dtype of `like`."""
    return recording.empty(shape, like.dtype)


class Lines(ctypes.Structure):
    """The kernels' `Lines`: the geometry of attention along one axis."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("batch", "lines", "length", "plane", "between", "step", "heads", "size")),
        ("lengths", ctypes.c_void_p),
        ("causal", ctypes.c_int),
        ("dropout", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("dropout_batch", "dropout_line", "dropout_head")),
    ]


class CacheLayout(ctypes.Structure):
    """The kernels' `CacheLayout`: which rows may attend to which slots."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("sentences", "lines", "rows", "heads", "size", "capacity")),
        ("own", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
    ]


class OwnSlotsArgument(ctypes.Structure):
    """The kernels' `OwnSlots`: the slots of each row, which change from position to position."""

    _fields_ = [("slots", ctypes.c_void_p), ("seen", ctypes.c_long), ("newest", ctypes.c_long)]


class DecoderArgument(ctypes.Structure):
    """The kernels' `Decoder`: what is needed to compute the next positions of a decoder state."""

    _fields_ = [
        ("calls", ctypes.c_void_p),
        ("num_calls", ctypes.c_long),
        ("table", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("scale", ctypes.c_double),
        ("embedded", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("in_bfloat16", "width")),
        ("own", ctypes.c_void_p),
        ("slots", ctypes.c_void_p * 2),
        *((name, ctypes.c_long) for name in ("columns", "used")),
    ]


class Broadcast(ctypes.Structure):
    """The kernels' `Broadcast`: a tensor and how it is broadcast to the cells of a grid."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("s", "t", "by_b", "by_s", "by_t")),
    ]


class Rows(ctypes.Structure):
    """The kernels' `Rows`: rows of a tensor, or of its layer norm, recomputed from statistics, weight and bias."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("data", "statistics", "weight", "bias")),
        ("width", ctypes.c_long),
    ]


class Restriction(ctypes.Structure):
    """The kernels' `Restriction`: which tokens may come next."""

    _fields_ = [
        ("required", ctypes.c_void_p),
        ("banned", ctypes.c_void_p),
        ("num_banned", ctypes.c_long),
        ("end", ctypes.c_int64),
    ]


class Weights(ctypes.Structure):
    """The kernels' `Weights`: packed weights in a floating-point type, and the bias."""

    _fields_ = [
        ("packed", ctypes.c_void_p),
        ("inputs", ctypes.c_long),
        ("features", ctypes.c_long),
        ("bias", ctypes.c_void_p),
    ]


class Int8Weights(ctypes.Structure):
    """The kernels' `Int8Weights`: packed 8-bit weights with their sums and scales, and the bias."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("packed", "sums", "scales", "bias")),
        *((name, ctypes.c_long) for name in ("inputs", "features")),
    ]


class GatedMixture(ctypes.Structure):
    """The kernels' `GatedMixture`: inputs of `gated_kv`."""

    _fields_ = [
        ("hidden", ctypes.c_void_p),
        ("stride", ctypes.c_long),
        ("bias", ctypes.c_void_p),
        ("first", Broadcast),
        ("second", Broadcast),
        ("width", ctypes.c_long),
        ("fusion", ctypes.c_int),
    ]


def call(name: str, like: Tensor, *arguments: Any) -> int:
    """Call the kernel for the dtype of `like` with as many threads as PyTorch uses; return its result, or 0.

    Raises:
        MemoryError: if there is no memory left.
        RuntimeError: if a tensor is not on the CPU.
    """
    threads, made = torch.get_num_threads(), recording.active()
    for argument in arguments:
        if isinstance(argument, Tensor) and not argument.is_cpu:
            raise RuntimeError(f"{name} runs on the CPU, but was given a tensor on {argument.device}")
    kernel = getattr(library(), f"{name}_{DTYPES[like.dtype]}")
    if kernel.argtypes is None:  # each parameter is always a number, or always a pointer
        kernel.argtypes = [*map(_parameter, arguments), ctypes.c_int]
    plain = [argument.data_ptr() if isinstance(argument, Tensor) else argument for argument in arguments]
    if torch.autograd.profiler._is_profiler_enabled:
        with record_function(f"native::{name}"):
            result: int = kernel(*plain, threads)
    else:
        result = kernel(*plain, threads)
    if result == NO_MEMORY:
        raise MemoryError(f"no memory left for {name}")
    if made is not None:
        made.add(getattr(library(), f"replayed_{name}_{DTYPES[like.dtype]}", None), arguments, threads)
    return result


def has_gemm(dtype: torch.dtype, *features: int) -> bool:
    """Whether there are custom matrix products in this dtype and for these numbers of features."""
    return not any(size % LANES for size in features) and dtype in DTYPES and _compiled_gemm(DTYPES[dtype])


@functools.cache
def _compiled_gemm(dtype: str) -> bool:
    return hasattr(library(), f"linear_forward_{dtype}")


def _parameter(argument: Any) -> type[ctypes._SimpleCData[Any]]:
    """The C type of a parameter."""
    if isinstance(argument, int):
        return ctypes.c_long
    return ctypes.c_double if isinstance(argument, float) else ctypes.c_void_p


def rows_of(x: Tensor) -> tuple[int, int]:
    """Number of rows, and of features of each."""
    return x.numel() // x.shape[-1], x.shape[-1]


def is_sequence_or_grid(x: Tensor) -> bool:
    """Whether `x` has the axes `[B, L, E]` or `[B, S, T, E]`, the only layouts that kernels support."""
    return x.ndim in (3, 4)


def broadcast_to(grid: Tensor, x: Tensor | None) -> Broadcast:
    """How `x`, which may be None, is broadcast to the cells of `grid`, a sequence or a grid."""
    if x is None:
        return Broadcast(None, 1, 1, 0, 0, 0)
    assert is_sequence_or_grid(grid)
    x = x.expand(grid.shape)
    if grid.ndim == 3:
        x = x[:, None]
    assert x.stride(-1) == 1 or not x.numel()
    return Broadcast(x.data_ptr(), *x.shape[1:3], *x.stride()[:3])


def lines_of(
    like: Tensor, embed_dim: int, geometry: tuple[int, int, bool], lengths: Tensor | None, weight_mask: Tensor | None
) -> Lines:
    """The lines along an axis; `geometry` is the number of heads, the axis, and whether attention is causal."""
    assert is_sequence_or_grid(like)
    num_heads, axis, causal = geometry
    s, t = (1, like.shape[1]) if like.ndim == 3 else like.shape[1:3]
    along_target = like.ndim == 3 or axis == 2
    lines, length, between, step = (s, t, t, 1) if along_target else (t, s, 1, t)
    strides = [0, 0, 0]
    if weight_mask is not None:
        kept = (lines,) if like.ndim == 4 else ()
        weight_mask = weight_mask.expand(like.shape[0], *kept, num_heads, length, length)
        strides = [weight_mask.stride(0), weight_mask.stride(1) if kept else 0, weight_mask.stride(-3)]
    return Lines(
        like.shape[0], lines, length, s * t, between, step, num_heads, embed_dim // num_heads,
        None if lengths is None else lengths.data_ptr(), causal,
        None if weight_mask is None else weight_mask.data_ptr(), *strides,
    )  # fmt: skip


def roles_of(parts: Sequence[Tensor], embed_dim: int) -> tuple[Any, ...]:
    """Pointers to queries, keys and values of the first cell, and the strides of queries and keys between cells."""
    query, key_value = parts[0], parts[-1]
    size = query.element_size()
    keys = key_value.data_ptr() + (embed_dim * size if len(parts) == 1 else 0)
    pointers = (query.data_ptr(), keys, keys + embed_dim * size)
    return *map(ctypes.c_void_p, pointers), query.stride(-2), key_value.stride(-2)


def evenly_spaced(x: Tensor) -> Tensor:
    """`x`, or a contiguous copy if its rows are not one constant stride apart."""
    even = x.stride(-1) == 1 and all(
        x.stride(axis) == x.shape[axis + 1] * x.stride(axis + 1) for axis in range(x.ndim - 2)
    )
    return x if even and x.numel() else x.contiguous()


def rows_or_norm(x: Tensor, norm: Sequence[Tensor]) -> Rows:
    """The rows of x, or their layer norm: `norm` is empty, or statistics, weight and bias."""
    vectors = (each.data_ptr() for each in norm) if norm else (None, None, None)
    return Rows(x.data_ptr(), *vectors, x.shape[-1])


def gated_mixture(hidden: Tensor, bias: Tensor, fusion: bool, parts: Sequence[Tensor]) -> GatedMixture:
    """The mixture of a hidden input with one or two lexical parts."""
    first, second = (broadcast_to(hidden, part) for part in (*parts, None)[:2])
    return GatedMixture(hidden.data_ptr(), hidden.stride(-2), bias.data_ptr(), first, second, len(bias), fusion)
