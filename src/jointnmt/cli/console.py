"""The terminal, as everything that shows progress or logs shares it, so that they do not write over each other."""

import os
from functools import cache

from rich.console import Console


@cache
def stderr() -> Console:
    """The console of progress, logs and messages."""
    return Console(stderr=True)


@cache
def stdout() -> Console:
    """The console of tables for people; programs get JSON instead. In a file a line is wider than a terminal's."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=120)
