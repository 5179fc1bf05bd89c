"""The kernels compiled for other processors than this one, as far as this one can run them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jointnmt.ops import native
from jointnmt.ops.native import processor

FOLDER = Path(__file__).parents[1] / "unit" / "ops"
NAMES = ("attention", "norm", "linear", "gating_and_pooling", "vocabulary", "packed")
KERNELS = [str(FOLDER / f"test_{name}.py") for name in NAMES]
TESTS = "not prepared_models"
EMULATED = Path(__file__).parents[1] / "support" / "emulated_avx_vnni.h"


def _instructions() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return {word for line in lines if line.startswith("flags") for word in line.split()}


@pytest.mark.skipif(native.library() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("flags", "needed", "largest", "tested"),
    [
        pytest.param("-march=haswell", {"avx2", "fma"}, 63, KERNELS, id="AVX2"),
        pytest.param(
            f"-march=haswell -D__AVXVNNI__ -include {EMULATED}", {"avx2", "fma"}, 127, KERNELS[-1:], id="AVX-VNNI"
        ),
        pytest.param(
            "-march=skylake-avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, 63, KERNELS, id="AVX-512"
        ),
        pytest.param("-DFAST_BF16_DOT", {"avx512_bf16"}, 127, KERNELS, id="pairs"),
    ],
)
def test_kernels_for_other_processors(
    flags: str, needed: set[str], largest: int, tested: list[str], tmp_path: Path
) -> None:
    """`largest` is the largest 8-bit integer of a row: smaller without instructions for sums of four products."""
    if not needed <= _instructions():
        pytest.skip(f"needs a processor with {', '.join(sorted(needed))}")
    if flags == "-march=haswell" and "avx512f" not in _instructions():
        pytest.skip("the kernels of this processor are these")
    if flags == "-DFAST_BF16_DOT" and processor.has_fast_bf16_dot():
        pytest.skip("the kernels of this processor are these")
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nexec c++ "$@" -O1 {flags}\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "CXX": str(compiler), "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--jaxtyping-packages=",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        *tested,
        "-k",
        TESTS,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    (library,) = (tmp_path / "jointnmt" / "kernels").glob("kernels-*.so")
    assert ctypes.CDLL(str(library)).largest_int8() == largest


CROSS_COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


@pytest.mark.skipif(
    not (shutil.which(CROSS_COMPILER) and shutil.which(EMULATOR)),
    reason="needs Debian's g++-aarch64-linux-gnu and qemu-user",
)
def test_kernels_for_arm(tmp_path: Path) -> None:
    """They compile for 64-bit ARM, and give the same results there as plain loops."""
    program, sources = tmp_path / "self-test", Path(native.__file__).parent / "csrc"
    test = Path(__file__).parents[1] / "support" / "kernel_self_test.cpp"
    flags = ("-std=c++17", "-O2", "-ffp-contract=fast", "-static", f"-I{sources}")
    subprocess.run([CROSS_COMPILER, *flags, str(test), "-o", str(program)], check=True, timeout=600)
    done = subprocess.run([EMULATOR, str(program)], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n")
