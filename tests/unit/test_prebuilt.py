"""Kernels in the package: the right ones for each processor, without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jointnmt.ops.native import build, library, prebuilt, processor
from jointnmt.ops.native.status import kernel_status
from support.kernels import needs_kernels

V4 = "fma avx2 bmi1 bmi2 f16c movbe abm avx512f avx512bw avx512cd avx512dq avx512vl"
PROCESSORS = {
    "GenuineIntel fma avx2 bmi1 bmi2 f16c movbe abm": "avx2",
    "GenuineIntel fma avx2 bmi1 bmi2 f16c movbe abm avx_vnni": "avx-vnni",
    f"GenuineIntel {V4}": "avx512",
    f"GenuineIntel {V4} avx512_vnni": "avx512-vnni",
    f"GenuineIntel {V4} avx512_vnni avx512_bf16": "avx512-vnni",
    f"AuthenticAMD {V4} avx512_vnni avx512_bf16": "avx512-bf16",
    f"GenuineIntel {V4} avx512_vnni avx512_bf16 amx_bf16 amx_int8": "amx",
    "GenuineIntel sse2 avx": None,
    "ARM neon": None,
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_each_processor_has_its_kind(processor: str) -> None:
    kind = prebuilt.kind_of(processor)
    assert (kind and kind.name) == PROCESSORS[processor]


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package with kernels for this processor, compiled here."""
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    monkeypatch.delenv("CXX", raising=False)
    kind, own = prebuilt.kind_of(processor.description()), library()
    if kind is None or own is None:
        pytest.skip("needs an x86-64 processor with AVX2")
    shutil.copy(own._name, kind.path)
    return kind.path


@needs_kernels
def test_kernels_of_the_package_need_no_compiler(shipped: Path, tmp_path: Path) -> None:
    program = (
        f"from pathlib import Path; from jointnmt.ops.native import library, prebuilt; "
        f"prebuilt.FOLDER = Path({str(shipped.parent)!r}); print(library()._name)"
    )
    environment = {**os.environ, "PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(shipped)
    assert not done.stderr and not (tmp_path / "cache").exists()


@needs_kernels
def test_a_named_compiler_is_asked_for_kernels_of_its_own(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prebuilt.find(processor.description()) == shipped
    monkeypatch.setenv("CXX", "g++")
    assert prebuilt.find(processor.description()) is None


@needs_kernels
def test_kernels_of_other_sources_are_not_taken(shipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(prebuilt.SOURCES, tmp_path / "csrc")
    with (tmp_path / "csrc" / "search.h").open("a") as file:
        file.write("// changed\n")
    monkeypatch.setattr(prebuilt, "SOURCES", tmp_path / "csrc")
    assert prebuilt.find(processor.description()) is None


@needs_kernels
def test_kernels_of_the_package_that_cannot_be_loaded_are_compiled_here(
    shipped: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = library()
    assert own is not None
    shipped.unlink()
    shipped.write_bytes(b"cut short")
    monkeypatch.setattr(build, "build", lambda: Path(own._name))
    again = library.__wrapped__()
    assert again is not None and again._name == own._name
    assert f"{shipped} cannot be loaded" in caplog.text and "reinstall it" in caplog.text
    status = kernel_status()
    assert status.state in ("verified", "not built") and status.problem is not None
    assert str(shipped) in status.problem
