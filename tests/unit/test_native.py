"""The kernels: how they are compiled, and what happens where they cannot be had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jointnmt.ops import native
from jointnmt.ops.backend import uses_kernels
from support.kernels import needs_gemm, needs_kernels


@pytest.mark.parametrize(
    ("vendor", "has_mkl", "expected"),
    [("GenuineIntel", True, True), ("GenuineIntel", False, False), ("AuthenticAMD", True, False)],
)
def test_float32_is_left_to_mkl_on_processors_of_its_maker(
    vendor: str, has_mkl: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_processor", lambda: f"vendor_id : {vendor}")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: has_mkl)
    assert native.pytorch_is_faster_in_float32.__wrapped__() == expected


NO_MEMORY_LEFT = """
import resource, torch
from jointnmt.ops import AttentionMask, axial_attention, linear
from jointnmt.models.layers.dropout import SharedDropout
torch.set_num_threads(2)
def attend(x):
    return axial_attention([x], 1, 1, AttentionMask(x[:0], is_causal=True), SharedDropout(0.0))
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
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of memory as Linux has them")
def test_a_kernel_that_finds_no_memory_raises_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_MEMORY_LEFT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.split(), done.returncode) == (["MemoryError", "MemoryError", "RuntimeError"], 0), done.stderr


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A machine that has compiled nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JOINTNMT_NATIVE", raising=False)
    native.library.cache_clear()
    yield monkeypatch
    native.library.cache_clear()


@needs_kernels
def test_the_library_is_compiled_once(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert native.library() is not None
    (built,) = (tmp_path / "jointnmt").iterdir()
    time = built.stat().st_mtime_ns
    native.library.cache_clear()
    assert native.library() is not None
    assert [path.stat().st_mtime_ns for path in (tmp_path / "jointnmt").iterdir()] == [time]


@needs_kernels
def test_a_spoiled_library_is_compiled_again(fresh: pytest.MonkeyPatch) -> None:
    built = native._compiled()
    size = built.stat().st_size
    built.write_bytes(built.read_bytes()[:100])
    assert native.library() is not None
    assert built.stat().st_size == size


@pytest.mark.parametrize("trouble", ["no compiler", "a compiler that fails", "nowhere to write", "no home"])
def test_without_kernels_there_is_a_warning_and_no_more(
    trouble: str, fresh: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if trouble == "no compiler":
        fresh.setenv("PATH", "")
    elif trouble == "a compiler that fails":
        broken = tmp_path / "c++"
        broken.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nprintf "out of \\377order" >&2; exit 1\n')
        broken.chmod(0o755)
        fresh.setenv("CXX", str(broken))
    elif trouble == "no home":
        fresh.delenv("XDG_CACHE_HOME")
        fresh.delenv("HOME", raising=False)
        fresh.setattr("os.path.expanduser", lambda path: path)  # as of a user that the system does not know
    else:
        (tmp_path / "file").touch()
        fresh.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert native.library() is None
    assert "Install a C++ compiler" in caplog.text
    assert not uses_kernels(torch.empty(2, 32))


def test_kernels_can_be_turned_off(fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fresh.setenv("JOINTNMT_NATIVE", "0")
    assert native.library() is None
    assert not caplog.text
