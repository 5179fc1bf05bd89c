"""The terminal, as everything that shows progress or logs shares it, so that they do not write over each other."""

from functools import cache

from rich.console import Console


@cache
def stderr() -> Console:
    """The console of progress, logs and messages."""
    return Console(stderr=True)


@cache
def stdout() -> Console:
    """The console of tables for people; programs get plain JSON lines instead."""
    return Console()
