"""Kernels of our own for a CPU, compiled on first use; without a compiler, PyTorch's operations serve.

What lies between the matrix products of a layer is memory traffic, and each of PyTorch's operations reads and writes
everything anew. `kernels.cpp` does it in few passes, and has matrix products that do some of it on their way. It needs
no headers but the language's own, compiles in seconds with any C++ compiler of the machine (`CXX`, `c++`, `g++` or
`clang++`), and is kept in the user's cache directory (`$XDG_CACHE_HOME/jointnmt`, by default `~/.cache/jointnmt`).
`JOINTNMT_NATIVE=0` turns it off.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "csrc" / "kernels.cpp"
"""Which includes the headers beside it."""
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC")
THREADS = "-fopenmp"


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None: turned off, or they could not be compiled, which is logged."""
    if os.environ.get("JOINTNMT_NATIVE", "1") == "0":
        return None
    try:
        path = _compiled()
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # what lies in the cache may be spoiled
            return ctypes.CDLL(str(_compiled(anew=True)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        logger.warning(
            "no kernels of our own on this machine, training on the CPU is slower (%s). "
            "Install a C++ compiler (g++ or clang++) or name one in CXX; if the cache is the trouble, name a directory "
            "that can be written to in XDG_CACHE_HOME. JOINTNMT_NATIVE=0 silences this.",
            error,
        )
        return None


def _compiled(anew: bool = False) -> Path:
    """The shared library for this source, compiler and processor; compiled if it is not there yet, or `anew`.

    Raises:
        OSError: if there is no compiler, or nowhere to write.
        RuntimeError: if the user has no home directory.
        subprocess.SubprocessError: if it fails.
    """
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)
    if compiler is None:
        raise OSError("no C++ compiler found")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    sources = [path.read_bytes() for path in sorted(SOURCE.parent.glob("*.[ch]*"))]
    flags = (*FLAGS, *(["-DFAST_BF16_DOT"] if has_fast_bf16_dot() else []))
    parts = (*sources, version, " ".join(flags).encode(), _processor().encode())
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jointnmt"
    path = cache / f"kernels-{key}.so"
    if path.exists() and not anew:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        built = Path(directory) / path.name
        for threads in ([THREADS], []):  # some compilers come without OpenMP: then the kernels use one thread
            command = [compiler, *flags, *threads, str(SOURCE), "-o", str(built)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600)
            if done.returncode == 0:
                built.replace(path)  # whole or not at all, whoever else does the same
                return path
    raise OSError(f"{compiler} failed: {next(iter(done.stderr.splitlines()), done.returncode)}")


def has_fast_bf16_dot() -> bool:
    """Whether instructions for pairs of bfloat16, if there are any, do twice the work of those for float32.

    On AMD's processors they do. On Intel's without AMX, or where a virtual machine hides it, they do half the work.
    """
    return "AuthenticAMD" in _processor()


@functools.cache
def pytorch_is_faster_in_float32() -> bool:
    """Whether PyTorch's matrix products are faster than ours there: those of MKL are, on Intel's processors."""
    return "GenuineIntel" in _processor() and torch.backends.mkl.is_available()


def _processor() -> str:
    """What the compiled kernels depend on: a cache directory may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("vendor_id", "model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
