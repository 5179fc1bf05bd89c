"""Lines of text from files, as commands and evaluations read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from jointnmt.data.corpus import check_line_length, cut_lines, read_lines
from jointnmt.errors import DataError


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a plain or compressed file (`.gz`, `.xz`, `.bz2`), read as a stream.

    Raises:
        DataError: if the file cannot be read, or a line is not UTF-8 text.
    """
    for number, raw in enumerate(read_lines(path), start=1):
        yield decoded(raw, f"{path}:{number}")


def lines_or_errors(lines: Iterable[bytes] | Path, origin: str) -> Iterator[str | DataError]:
    """The lines of a file, or of a stream without line ends, as text, or an error in place of an invalid line.

    `origin` names the file in messages.

    Raises:
        DataError: if a file cannot be read.
    """
    for number, raw in enumerate(cut_lines(lines) if isinstance(lines, Path) else lines, start=1):
        yield decoded_or_error(raw, f"{origin}:{number}")


def decoded_or_error(raw: bytes, origin: str) -> str | DataError:
    """A line as by `decoded`, or the error that it raises."""
    try:
        return decoded(raw, origin)
    except DataError as error:
        return error


def decoded(raw: bytes, origin: str) -> str:
    """A line as text; `origin` names it in messages.

    Raises:
        DataError: if it is too long, or not UTF-8 text.
    """
    check_line_length(raw, origin)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{origin}: is not valid UTF-8 (byte {error.start + 1} of the line). Convert the text to UTF-8, for "
            "example with iconv."
        ) from error
    if "\0" in text:
        raise DataError(f"{origin}: holds a NUL byte, so it is not text. Remove it.")
    return text
