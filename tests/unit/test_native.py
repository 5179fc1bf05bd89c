"""The kernels: products left to PyTorch, and behaviour without memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from jointnmt.ops.native import processor
from support.kernels import needs_gemm


@pytest.mark.parametrize(
    ("vendor", "has_mkl", "expected"),
    [("GenuineIntel", True, True), ("GenuineIntel", False, False), ("AuthenticAMD", True, False)],
)
def test_float32_is_left_to_mkl_on_processors_of_its_maker(
    vendor: str, has_mkl: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_described", lambda: f"vendor_id : {vendor}")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: has_mkl)
    assert processor.pytorch_is_faster_in_float32.__wrapped__() == expected


NO_MEMORY_LEFT = """
import resource, torch
from jointnmt.ops import AttentionMask, axial_attention, linear
from jointnmt.models.layers.dropout import SharedDropout
torch.set_num_threads(2)
def attend(x):
    return axial_attention([x], 1, 1, AttentionMask(lambda: x[:0], is_causal=True), SharedDropout(0.0))
x, weight = torch.zeros(1, 5000, 48, dtype=torch.bfloat16), torch.zeros(6400, 6400, dtype=torch.bfloat16)
rows = torch.zeros(600, 6400, dtype=torch.bfloat16)
attend(x[:, :16].contiguous())  # the library is loaded, the threads are there
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**26, -1))
for run in (
    lambda: attend(x),  # each thread's own memory
    lambda: linear(rows, weight),  # the packed weights
    lambda: torch.zeros(2**30),
):
    try:
        run()
    except (MemoryError, RuntimeError) as error:
        print(type(error).__name__)
"""


@needs_gemm
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of memory as Linux has them")
def test_a_kernel_that_finds_no_memory_raises_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_MEMORY_LEFT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.split(), done.returncode) == (["MemoryError", "MemoryError", "RuntimeError"], 0), done.stderr
