"""Standard input and output, and files of results."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jointnmt.data.lines import decoded_lines, text_lines
from jointnmt.errors import ConfigurationError

logger = logging.getLogger(__name__)

STANDARD_INPUT = "standard input"


def input_lines(path: Path | None) -> Iterator[str]:
    """The lines of a plain or compressed file, or of standard input, as they come.

    Raises:
        DataError: if the file cannot be read, or a line is no UTF-8 text.
    """
    return decoded_lines(_standard_input(), STANDARD_INPUT) if path is None else text_lines(path)


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[str], None]]:
    """A function that writes a line to a file, or to standard output, at once.

    A file gets its name when it is finished: until then, or after an error, its lines are in `NAME.part`.

    Raises:
        ConfigurationError: if standard output is closed.
    """
    if path is None:
        if sys.stdout is None:
            raise ConfigurationError("Standard output is closed: nowhere to write to. Name a file by --output.")
        yield _writer(sys.stdout.buffer)
        return
    if path.exists() and not path.is_file():  # a pipe or a device is there to be written to, not to be replaced
        with path.open("wb") as stream:
            yield _writer(stream)
        return
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with unfinished.open("wb") as stream:
            yield _writer(stream)
    except BaseException:
        if unfinished.exists():
            logger.warning("%s: is not finished; the lines so far are in %s", path, unfinished)
        raise
    unfinished.replace(path)


def check_output(path: Path) -> None:
    """Find out before the work whether its result can be written to a file.

    Raises:
        ConfigurationError: if it is a folder, or is in none.
    """
    if path.is_dir():
        raise ConfigurationError(f"{path}: is a folder, and the result is one file. Name the file.")
    if not path.parent.is_dir():
        raise ConfigurationError(f"{path}: there is no folder {path.parent} to write to. Make it first.")


def _writer(stream: IO[bytes]) -> Callable[[str], None]:
    def write(line: str) -> None:
        stream.write(line.encode("utf-8") + b"\n")
        stream.flush()

    return write


def _standard_input() -> Iterator[bytes]:
    for number, raw in enumerate(sys.stdin.buffer):
        line = raw if number else raw.removeprefix(b"\xef\xbb\xbf")
        yield line.removesuffix(b"\n").removesuffix(b"\r")
