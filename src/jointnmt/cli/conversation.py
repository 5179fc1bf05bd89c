"""A terminal on which lines are typed and translated one by one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeVar

from jointnmt.cli.console import shows_standard_error, stderr
from jointnmt.translator import Translator

Line = TypeVar("Line")


def at_a_terminal() -> bool:
    """Whether standard input and standard error are both terminals."""
    return bool(sys.stdin and sys.stdin.isatty() and shows_standard_error())


def greeting(translator: Translator) -> str:
    """Text that describes the model, names its languages, and says how to end."""
    source, target = translator.segmentation.languages
    return (
        f"{translator.description()}\n"
        f"Type a line in {source} and press Enter: its translation into {target} follows. Ctrl-D ends."
    )


def prompted(lines: Iterator[Line], prompt: str) -> Iterator[Line]:
    """The lines, each after a prompt on standard error."""
    while True:
        stderr().print(prompt, end="", markup=False, highlight=False, style="bold")
        try:
            line = next(lines)
        except StopIteration:
            stderr().print()  # so that the shell's prompt begins on a new line
            return
        yield line
