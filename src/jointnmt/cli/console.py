"""The consoles of standard output and standard error, shared so that progress and logs do not overwrite each other."""

import os
from functools import cache

from rich.console import Console


@cache
def stderr() -> Console:
    """The console for progress, logs and messages."""
    return Console(stderr=True)


@cache
def stdout() -> Console:
    """The console for tables, which are 120 columns wide in a file."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=120)
