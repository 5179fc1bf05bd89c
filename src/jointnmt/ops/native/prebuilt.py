"""The CPU kernels of a wheel, compiled for several kinds of processor, so that a machine needs no compiler.

    python -m jointnmt.ops.native.prebuilt    # compile all, on x86-64; `make wheel` does

A library has the hash of its sources in its name, so that one of other sources is never loaded. For any other
processor, and where `CXX` names a compiler, the kernels are compiled on first use (`build`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "prebuilt"
SOURCES = Path(__file__).parent / "csrc"
SOURCE = SOURCES / "kernels.cpp"
"""The source file that is compiled, which includes the headers beside it."""
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-shared", "-fPIC")
"""Flags of every library, besides those of its processor and of threads."""
THREADS = "-fopenmp"
"""Flag of threads; libgomp is PyTorch's."""
AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True)
class Kind:
    """A kind of processor that has a library."""

    name: str
    needs: frozenset[str]
    """Required processor features, as named by Linux."""
    flags: tuple[str, ...]
    vendor: str = ""
    """Vendor that the kind is restricted to, if any."""

    @property
    def path(self) -> Path:
        """Path of the library."""
        return FOLDER / f"kernels-{self.name}-{source_hash()}.so"


VNNI, BF16, AMX = "-mavx512vnni", "-mavx512bf16", ("-mamx-tile", "-mamx-bf16", "-mamx-int8")
KINDS = (
    Kind(
        "amx", AVX512 | {"avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"}, ("-march=x86-64-v4", VNNI, BF16, *AMX)
    ),
    Kind(
        "avx512-bf16",
        AVX512 | {"avx512_vnni", "avx512_bf16"},
        ("-march=x86-64-v4", VNNI, BF16, "-DFAST_BF16_DOT"),  # fast on AMD's processors: has_fast_bf16_dot
        "AuthenticAMD",
    ),
    Kind("avx512-vnni", AVX512 | {"avx512_vnni"}, ("-march=x86-64-v4", VNNI)),
    Kind("avx512", AVX512, ("-march=x86-64-v4",)),
    Kind("avx-vnni", AVX2 | {"avx_vnni"}, ("-march=x86-64-v3", "-mavxvnni")),
    Kind("avx2", AVX2, ("-march=x86-64-v3",)),
)
"""Kinds of processor, fastest first: the first that matches is used."""


def source_hash(*also: bytes) -> str:
    """Hash of the sources of the libraries, and of what else a library depends on."""
    parts = [*(path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]*"))), *also]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def find(processor: str) -> Path | None:
    """The shipped library for a processor, given its description in /proc/cpuinfo; None if there is none."""
    if not FOLDER.is_dir() or sys.platform != "linux" or platform.machine() != "x86_64" or os.environ.get("CXX"):
        return None
    kind = kind_of(processor)
    return kind.path if kind is not None and kind.path.is_file() else None


def kind_of(processor: str) -> Kind | None:
    """The first kind that matches a processor's description."""
    features = set(processor.split())
    return next((kind for kind in KINDS if kind.needs <= features and kind.vendor in processor), None)


def build_all() -> None:
    """Compile the libraries of all kinds.

    Raises:
        subprocess.CalledProcessError: if the compiler fails.
    """
    FOLDER.mkdir(exist_ok=True)
    for kind in KINDS:
        subprocess.run(["c++", *FLAGS, THREADS, *kind.flags, str(SOURCE), "-o", str(kind.path)], check=True)


if __name__ == "__main__":
    build_all()
