"""Fixtures of the tests of operations."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from jointnmt.ops import backend
from jointnmt.ops.native import library
from jointnmt.ops.native.calls import has_gemm
from support.kernels import GEMM_KINDS, NO_GEMM


@pytest.fixture(params=GEMM_KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    """The type of products, by the custom ones on any processor, or by PyTorch's."""
    name, *by_pytorch = request.param.split(maxsplit=1)
    kind: torch.dtype = getattr(torch, name)
    if library() is None or not (by_pytorch or has_gemm(kind)):
        pytest.skip(NO_GEMM)
    with backend("native", gemm="pytorch" if by_pytorch else "custom"):
        yield kind


@pytest.fixture
def unchecked_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off the checks of shapes, as outside of tests, so that operations themselves refuse them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
