"""Shared parts of the tests of operations: small models that kernels can compute, and features of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from jointnmt.models import ModelConfig
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops.native import library
from jointnmt.ops.native.calls import has_gemm

needs_kernels = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
NO_GEMM = "needs a C++ compiler and a processor with AVX2, for bfloat16 one without AMX"
needs_gemm = pytest.mark.skipif(library() is None or not has_gemm(torch.bfloat16), reason=NO_GEMM)


def require_gemm(precision: str) -> None:
    """Skip a test if there are no custom matrix products for this precision of inference."""
    if library() is None or not has_gemm(torch.float32 if precision == "float32" else torch.bfloat16):
        pytest.skip(NO_GEMM)


VOCABULARY = 40
SIZES = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 48, "dropout": 0.0}
MODELS: dict[str, ModelConfig] = {
    "transformer": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2),
    "transformer-post": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2, norm="post"),
    "transformer-emelin": TransformerConfig(
        **SIZES,
        encoder_layers=2,
        decoder_layers=2,
        emelin_compatible=True,
        attention_bias=False,
        shortcuts=ShortcutConfig(),
    ),
    "transformer-shortcuts": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2, shortcuts=ShortcutConfig()),
    "reformer-base": ReformerBaseConfig(**SIZES, num_layers=2),
    "reformer-base-shortcuts": ReformerBaseConfig(**SIZES, num_layers=2, shortcuts=ShortcutConfig()),
    "reformer-base-source-shortcuts": ReformerBaseConfig(
        **SIZES, num_layers=2, shortcuts=ShortcutConfig(places=("source",))
    ),
    "reformer-fast": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=2),
    "reformer-fast-checkpointed": ReformerFastConfig(
        **SIZES, num_layers=2, prenet_layers=2, activation_checkpointing=True
    ),
    "reformer-fast-fusion": ReformerFastConfig(
        **SIZES, num_layers=2, prenet_layers=2, shortcuts=ShortcutConfig(kind="fusion")
    ),
}

GEMM_SIZES = [(16, 16), (48, 80), (64, 128), (144, 32)]
"""Features before and after: single vectors, parts of a panel, whole panels, several."""
GEMM_KINDS = ["float32", "float32 by PyTorch", "bfloat16"]


@contextmanager
def number_of_threads(threads: int) -> Iterator[None]:
    """Context with so many threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def exact_and_rounded(kind: torch.dtype, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers that bfloat16 represents, in float64 and in `kind`."""
    rounded = torch.randn(shape).bfloat16()
    return rounded.double().requires_grad_(), rounded.to(kind).requires_grad_()
