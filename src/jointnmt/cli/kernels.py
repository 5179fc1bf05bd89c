"""`jointnmt kernels`: what computes on this CPU?"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from jointnmt.cli.console import stdout
from jointnmt.errors import ConfigurationError
from jointnmt.ops.native import build
from jointnmt.ops.native.status import KernelStatus, kernel_status


def kernels(
    action: Annotated[
        Literal["status", "build"], typer.Argument(help="Tell how things stand, or build them now.")
    ] = "status",
    force: Annotated[bool, typer.Option("--force", help="build: compile, even if they have been built.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="status: print one JSON object.")] = False,
) -> None:
    """Build the custom CPU kernels, or tell how they stand.

    They are compiled on first use, so that building them is needed only where a first use must not wait, as in the
    image of a container. `build` prints the path of the library, and fails with exit code 2 where there can be none.

    `status` builds nothing. It tells the compiler and its version, the processor and which of its features the kernels
    use, what multiplies matrices in each precision (the kernels, or PyTorch where that is faster), where the library
    lies, its SHA-256, and whether it is verified: a library that is damaged, altered, another user's, or open to others
    is never loaded, but built anew or refused.
    """
    if action == "build":
        if as_json:
            raise ConfigurationError("--json is for jointnmt kernels status.")
        path = build.build(force)
        build.load(path)
        typer.echo(path)
        return
    if force:
        raise ConfigurationError("--force is for jointnmt kernels build.")
    status = kernel_status()
    if as_json:
        typer.echo(json.dumps(asdict(status)))
        return
    stdout().print(_table(status))


def _table(status: KernelStatus) -> Table:
    table = Table(title="custom CPU kernels", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("state", f"{status.state}{' (turned off by JOINTNMT_NATIVE=0)' if status.turned_off else ''}")
    if status.problem:
        table.add_row("problem", escape(status.problem))
    table.add_row("compiler", status.compiler or "none")
    table.add_row("version", status.compiler_version or "")
    table.add_row("processor", status.processor)
    table.add_row("features used", ", ".join(status.features) or "none")
    for precision, used in status.products.items():
        table.add_row(f"{precision} products", used)
    table.add_row("library", escape(status.library or f"none in {status.directory}" if status.directory else "none"))
    table.add_row("SHA-256", status.sha256 or "")
    return table
