"""`jointnmt kernels`: builds the custom CPU kernels, and shows their status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from jointnmt.errors import ConfigurationError
from jointnmt.ops.native import build
from jointnmt.ops.native.status import KernelStatus, kernel_status


def kernels(
    action: Annotated[
        Literal["status", "build"], typer.Argument(help="Show their status, or build them now.")
    ] = "status",
    force: Annotated[bool, typer.Option("--force", help="build: compile, even if they have been built.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="status: print one JSON object.")] = False,
) -> None:
    """Build the custom CPU kernels, or show their status.

    A wheel made by `make wheel` has them for x86-64 processors with AVX2 or more. Elsewhere they are compiled on first
    use, so building them is needed only if the first use must not wait, as in a container image. `build` prints the
    path of the library, and fails with exit code 2 if it cannot be built; with --force it compiles one even if kernels
    came with the package, which are still preferred.

    `status` builds nothing. It shows the compiler and its version, the processor and which of its features the kernels
    use, what multiplies matrices in each precision (the kernels, or in training PyTorch where that is faster), the
    path of the library, its SHA-256, and whether it is verified: a library that is damaged, altered, owned by another
    user or writable by others is never loaded, but rebuilt or refused.
    """
    if action == "build":
        if as_json:
            raise ConfigurationError("--json is for jointnmt kernels status.")
        path = (None if force else build.shipped()) or build.build(force)
        build.load(path)
        typer.echo(path)
        return
    if force:
        raise ConfigurationError("--force is for jointnmt kernels build.")
    status = kernel_status()
    if as_json:
        typer.echo(json.dumps(asdict(status)))
        return
    for line in _lines(status):
        typer.echo(line)


def _lines(status: KernelStatus) -> Iterator[str]:
    """One fact a line, never wrapped, so that paths and checksums can be copied."""
    rows = {
        "state": f"{status.state}{' (turned off by JOINTNMT_NATIVE=0)' if status.turned_off else ''}",
        "problem": status.problem,
        "compiler": status.compiler or "none",
        "version": status.compiler_version,
        "processor": status.processor,
        "features used": ", ".join(status.features) or "none",
        **{f"{precision} products": used for precision, used in status.products.items()},
        "threads": "one, as the compiler has no OpenMP" if status.has_threads is False else None,
        "library": status.library or (f"none in {status.directory}" if status.directory else "none"),
        "SHA-256": status.sha256,
    }
    return (f"{name:<20}{value}" for name, value in rows.items() if value)
