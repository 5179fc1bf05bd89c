"""Options for the lower bounds of buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from jointnmt.errors import ConfigurationError

if TYPE_CHECKING:
    from jointnmt.analysis.buckets import Buckets

HELP = "Lower bound of a bucket. Repeatable."

Edges = Annotated[list[int] | None, typer.Option(help=HELP, show_default="10, 20, 30, 40")]
FrequencyEdges = Annotated[list[int] | None, typer.Option(help=HELP, show_default="10, 100, 1000, 10000")]


def buckets_of(edges: Sequence[int] | None, default: Buckets) -> Buckets:
    """Buckets with these edges, or the default ones.

    Raises:
        ConfigurationError: if the edges do not increase.
    """
    if not edges:
        return default
    try:
        return replace(default, edges=tuple(edges))
    except ValueError as error:
        raise ConfigurationError(f"{str(error).capitalize()}.") from error
