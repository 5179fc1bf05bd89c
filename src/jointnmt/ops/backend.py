"""The choice of implementation: the one place that knows which kernels are usable."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from jointnmt.errors import ConfigurationError
from jointnmt.ops.native import library
from jointnmt.ops.native.calls import DTYPES, LANES, has_gemm
from jointnmt.ops.native.processor import pytorch_is_faster_in_float32

Name = Literal["native", "plain", "sdpa"]
Gemm = Literal["fastest", "custom", "pytorch"]


@dataclass(frozen=True)
class _Choice:
    name: Name
    gemm: Gemm = "fastest"


def _from_environment() -> _Choice:
    name = os.environ.get("JOINTNMT_BACKEND", "native")
    if name not in get_args(Name):
        raise ConfigurationError(f"JOINTNMT_BACKEND is {name!r}; it can be {', '.join(get_args(Name))}.")
    return _Choice(name)  # type: ignore[arg-type]


_choice = _from_environment()


@contextmanager
def backend(name: Name, gemm: Gemm = "fastest") -> Iterator[None]:
    """A context that sets the implementation of all operations, for the whole process.

    Args:
        name: `native`, the default: custom CPU kernels where they apply, and on a GPU PyTorch's fused attention.
            `plain`: each operation's plain form; a GPU still uses fused attention. `sdpa`: like `plain`, with fused
            attention on every device. The environment variable JOINTNMT_BACKEND sets the default of the process.
        gemm: matrix products of `native`: `custom`, `pytorch`, or `fastest` on this processor.
    """
    global _choice
    before, _choice = _choice, _Choice(name, gemm)
    try:
        yield
    finally:
        _choice = before


def graphs_enabled() -> bool:
    """Whether computations may be recorded and replayed: unless JOINTNMT_GRAPHS=0 is set in the environment."""
    return os.environ.get("JOINTNMT_GRAPHS", "1") != "0"


def implementation() -> _Choice:
    """The choice of `backend`, comparable and hashable."""
    return _choice


def uses_kernels(x: Tensor, *features: int, beside: Sequence[Tensor] = ()) -> bool:
    """Whether the kernels take tensors like `x`, and vectors of these numbers of features.

    Under autocast, `x` must already have the autocast dtype, as results of the surrounding matrix products will.

    Args:
        x: a tensor that the kernel reads.
        features: numbers of features, which must be multiples of `LANES`.
        beside: other tensors that the kernel reads, which must have the dtype of `x`.
    """
    if torch.compiler.is_compiling():
        return False
    if torch.is_autocast_enabled("cpu") and x.dtype != torch.get_autocast_dtype("cpu"):
        return False
    for size in features:
        if size % LANES:
            return False
    for other in beside:
        if other.dtype != x.dtype:
            return False
    return kernels_read(x)


def kernels_read(x: Tensor) -> bool:
    """Whether the kernels are chosen, available, and can read `x`: on the CPU, in a dtype that they support."""
    return (
        not torch.compiler.is_compiling()
        and x.is_cpu
        and type(x) in (Tensor, torch.nn.Parameter)
        and x.dtype in DTYPES
        and _choice.name == "native"
        and library() is not None
    )


def uses_own_gemm(x: Tensor, *features: int) -> bool:
    """Whether to multiply the rows of `x` by the custom matrix products: if available, and PyTorch's are not faster."""
    gemm = _choice.gemm
    if gemm == "pytorch" or not has_gemm(x.dtype, *features):
        return False
    return gemm == "custom" or not (x.dtype == torch.float32 and pytorch_is_faster_in_float32())


def multiplies_as_float32() -> bool:
    """Whether the kernels multiply bfloat16 as float32, for lack of fast bfloat16 instructions on this processor."""
    return bool(getattr(library(), "multiplies_as_float", int)())


def uses_fused_attention(x: Tensor) -> bool:
    """Whether to use PyTorch's fused attention: on a GPU, or with `sdpa`. On a CPU it is slower at sentence lengths."""
    return x.device.type == "cuda" or _choice.name == "sdpa"
