"""The kernels as they are compiled for other processors than this one, as far as this one can run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jointnmt.ops import native

KERNELS = Path(__file__).parent.parent / "unit" / "test_native.py"
TESTS = "attention or residual or products or reduction or mixture or noise or greatest or log_softmax or decoding"


def _instructions() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return {word for line in lines if line.startswith("flags") for word in line.split()}


@pytest.mark.skipif(native.library() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        pytest.param("-march=haswell", {"avx2", "fma"}, id="AVX2"),
        pytest.param("-march=skylake-avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, id="AVX-512"),
        pytest.param("-DFAST_BF16_DOT", {"avx512_bf16"}, id="pairs"),
    ],
)
def test_kernels_for_other_processors(flags: str, needed: set[str], tmp_path: Path) -> None:
    if not needed <= _instructions():
        pytest.skip(f"needs a processor with {', '.join(sorted(needed))}")
    if flags == "-DFAST_BF16_DOT" and native.has_fast_bf16_dot():
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
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        str(KERNELS),
        "-k",
        TESTS,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert len(list((tmp_path / "jointnmt" / "kernels").glob("kernels-*.so"))) == 1
