"""Status of the custom CPU kernels on this machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from jointnmt.errors import ConfigurationError
from jointnmt.ops.native import build, prebuilt, processor

MACROS = {
    "__AVX2__": "AVX2",
    "__FMA__": "FMA",
    "__AVXVNNI__": "AVX-VNNI",
    "__AVX512F__": "AVX-512",
    "__AVX512BF16__": "AVX-512 BF16",
    "__AVX512VNNI__": "AVX-512 VNNI",
    "__AMX_BF16__": "AMX BF16",
    "__ARM_NEON": "NEON",
}
"""Compiler macros of the processor features that the kernels use."""
OWN = "kernels"
LibraryState = Literal["of the package", "verified", "not built", "damaged", "unavailable"]


@dataclass(frozen=True)
class KernelStatus:
    """The kernels that this process would use, determined without building any."""

    state: LibraryState
    """of the package: the shipped library is used. verified: the compiled library is used. not built: built on first
    use. damaged: built again on first use. unavailable: none can be built, or the directory is refused."""
    problem: str | None
    """Why the library is damaged or unavailable, and what to do."""
    turned_off: bool
    """Whether JOINTNMT_NATIVE=0 is set."""
    processor: str
    compiler: str | None = None
    compiler_version: str | None = None
    features: tuple[str, ...] = ()
    """Processor features that the compiler targets and the kernels use; the kind, for a shipped library."""
    directory: str | None = None
    library: str | None = None
    sha256: str | None = None
    has_threads: bool | None = None
    """Whether the library is multi-threaded: not if its compiler lacks OpenMP. None: not built, or turned off."""
    products: dict[str, str] = field(default_factory=dict)
    """Implementation of matrix products in each precision, kernels or PyTorch, which may differ between training and
    inference; empty until the kernels are built."""


def kernel_status() -> KernelStatus:
    """The current status."""
    off, problem = build.turned_off(), None
    if (shipped := prebuilt.find(processor.description())) is not None:
        kind = prebuilt.kind_of(processor.description())
        assert kind is not None
        try:
            usable = products(None if off else shipped)
        except ConfigurationError as error:
            problem = str(error)
        else:
            return KernelStatus(
                "of the package", None, off, processor.name(), features=(kind.name,), directory=str(shipped.parent),
                library=str(shipped), has_threads=True, products=usable,
            )  # fmt: skip
    return _compiled_status(off, problem)


def _compiled_status(off: bool, problem: str | None) -> KernelStatus:
    """Status of kernels compiled on this machine; `problem` is that of the shipped ones, if any."""
    try:
        toolchain = build.Toolchain.here()
    except ConfigurationError as error:
        return KernelStatus("unavailable", problem or str(error), off, processor.name(), products=products(None))
    features = compiled_features(toolchain)
    try:
        directory = build.cache_directory()
        path, damaged = build.find(directory, toolchain)
        usable = products(None if off else path) if off or path else {}
    except ConfigurationError as error:
        return KernelStatus(
            "unavailable", problem or str(error), off, processor.name(), toolchain.compiler, toolchain.version,
            features, products=products(None),
        )  # fmt: skip
    state: LibraryState = "verified" if path else "damaged" if damaged else "not built"
    return KernelStatus(
        state,
        "; ".join([*filter(None, [problem]), *(f"{each} {fault}" for each, fault in damaged.items())]) or None,
        off,
        processor.name(),
        toolchain.compiler,
        toolchain.version,
        features,
        directory=str(directory),
        library=None if path is None else str(path),
        sha256=None if path is None else build.checksum_in_name(path),
        has_threads=None if path is None or off else hasattr(build.load(path), "uses_threads"),
        products=usable,
    )


def products(path: Path | None) -> dict[str, str]:
    """Implementation of matrix products in each precision, with the verified library at `path`, or without any."""
    kernels = None if path is None else build.load(path)
    float32 = OWN if hasattr(kernels, "linear_forward_float32") else "PyTorch"
    if processor.pytorch_is_faster_in_float32():  # inference packs its weights for the kernels in any case
        float32 = f"{OWN}; in training PyTorch (MKL)" if float32 == OWN else "PyTorch (MKL)"
    return {
        "float32": float32,
        "bfloat16": OWN if hasattr(kernels, "linear_forward_bfloat16") else "PyTorch",
        "int8": OWN if hasattr(kernels, "pack_weights_int8") else "PyTorch",
    }


def compiled_features(toolchain: build.Toolchain) -> tuple[str, ...]:
    """Features of this processor that the compiler targets and the kernels use."""
    command = [toolchain.compiler, *toolchain.flags, "-dM", "-E", "-x", "c++", "/dev/null"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ()
    defined = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define ")}
    return tuple(name for macro, name in MACROS.items() if macro in defined)
