"""The switch between implementations, what the kernels take, and masks of dropout."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from jointnmt.ops import backend, dropout_mask
from jointnmt.ops.backend import uses_fused_attention, uses_kernels, uses_own_gemm
from jointnmt.ops.native import library
from jointnmt.ops.native.calls import has_gemm
from support.kernels import needs_gemm, needs_kernels, number_of_threads


@needs_kernels
def test_the_kernels_can_be_chosen_and_left() -> None:
    x = torch.empty(2, 32)
    assert uses_kernels(x, 32)
    with backend("plain"):
        assert not uses_kernels(x, 32) and not uses_fused_attention(x)
        with backend("native"):
            assert uses_kernels(x, 32)
        with backend("sdpa"):
            assert not uses_kernels(x, 32) and uses_fused_attention(x)
    assert uses_kernels(x, 32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "expected"),
    [("JOINTNMT_BACKEND=plain", "False"), ("JOINTNMT_NATIVE=0", "False"), ("JOINTNMT_BACKEND=native", "True")],
)
def test_the_environment_sets_the_default(variable: str, expected: str) -> None:
    name, value = variable.split("=")
    code = "import torch; from jointnmt.ops.backend import uses_kernels; print(uses_kernels(torch.empty(2, 32)))"
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.environ[{name!r}] = {value!r}; {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == expected or library() is None


@pytest.mark.slow
def test_an_unknown_default_is_refused() -> None:
    code = "import os; os.environ['JOINTNMT_BACKEND'] = 'fast'; import jointnmt.ops"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "JOINTNMT_BACKEND is 'fast'; it can be native, plain, sdpa" in done.stderr


@needs_gemm
def test_either_matrix_products_can_be_chosen() -> None:
    for kind in (torch.float32, torch.bfloat16):
        x = torch.empty(3, 16, dtype=kind)
        with backend("native", gemm="pytorch"):
            assert not uses_own_gemm(x, 32)
        with backend("native", gemm="custom"):
            assert uses_own_gemm(x, 32) == has_gemm(kind)
            assert not uses_own_gemm(x, 24)
    assert uses_own_gemm(torch.empty(3, 16).bfloat16(), 32)


def test_what_the_kernels_cannot_take_is_left_to_pytorch() -> None:
    assert not uses_kernels(torch.empty(2, 24), 24)
    for kind in (torch.float64, torch.float16):
        assert not uses_kernels(torch.empty(2, 32, dtype=kind))
    assert not uses_kernels(torch.empty(2, 32, device="meta"))
    with FakeTensorMode():
        assert not uses_kernels(torch.empty(2, 32))
    with torch.autocast("cpu", torch.bfloat16):  # otherwise values between it and matrix products would have two types
        assert not uses_kernels(torch.empty(2, 32))


@needs_kernels
def test_masks_of_dropout() -> None:
    """Two values, in the right share, the same from the same seed and for any number of threads."""
    torch.manual_seed(5)
    mask = dropout_mask((300, 1, 101), 0.3, torch.empty(0))
    assert mask.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (mask == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    torch.manual_seed(5)
    with number_of_threads(3):
        again = dropout_mask((300, 1, 101), 0.3, torch.empty(0))
    assert torch.equal(mask, again)
    assert not torch.equal(mask, dropout_mask((300, 1, 101), 0.3, torch.empty(0)))
