"""Lines of text out of files, as commands and evaluations read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from jointnmt.data.corpus import read_lines
from jointnmt.errors import DataError


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a plain or compressed file (`.gz`, `.xz`), read as a stream.

    Raises:
        DataError: if the file cannot be read, or a line is no UTF-8 text.
    """
    return decoded_lines(read_lines(path), str(path))


def decoded_lines(lines: Iterable[bytes], origin: str) -> Iterator[str]:
    """Lines as text; `origin` is what error messages call their file.

    Raises:
        DataError: naming the line, if one is not valid UTF-8 or holds a NUL byte.
    """
    for number, raw in enumerate(lines, start=1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{origin}:{number}: is not valid UTF-8 (byte {error.start + 1} of the line). Convert the text to "
                "UTF-8, for example with iconv."
            ) from error
        if "\0" in text:
            raise DataError(f"{origin}:{number}: holds a NUL byte, so it is no text. Remove it.")
        yield text
