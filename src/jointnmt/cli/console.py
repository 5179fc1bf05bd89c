"""The consoles of standard output and standard error, shared so that progress and logs do not overwrite each other.

rich is imported on first use.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column


PLAIN: dict[str, Any] = {"markup": False, "emoji": False}
"""Console settings that print names of files and runs verbatim, even with [brackets] or :colons: in them."""


class _StandardError:
    """Standard error, to which writing never fails, even when its terminal is gone."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return int(sys.stderr.write(text))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


@cache
def stderr() -> Console:
    """The console for progress, logs and messages."""
    from rich.console import Console

    if sys.stderr is None:
        return Console(stderr=True, **PLAIN)
    return Console(file=cast(Any, _StandardError()), **PLAIN)


@cache
def stdout() -> Console:
    """The console for tables, which are 120 columns wide in a file."""
    from rich.console import Console

    console = Console(**PLAIN)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=120, **PLAIN)


def numeric(*headings: str) -> list[Column]:
    """Columns of a table that are aligned to the right."""
    from rich.table import Column

    return [Column(heading, justify="right") for heading in headings]


def shows_standard_error() -> bool:
    """Whether standard error is a terminal, so that a user may see it."""
    return sys.stderr is not None and sys.stderr.isatty()


def counted(number: int, what: str) -> str:
    """`1 line`, `2,000 lines`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
