"""The kind of pairs that a file holds, by its name and first lines; and files that are not text."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Literal

from jointnmt.compression import plain_name, undeclared_compression
from jointnmt.data.corpus import UNREADABLE, open_text, unreadable
from jointnmt.errors import DataError

PairKind = Literal[".tsv", ".csv", ".jsonl", ".tmx", ".xliff"]

HEAD_BYTES, HEAD_LINES = 2**18, 500
"""Bytes and lines of a file that are examined before it is read."""

DOCUMENTS = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "an archive, or a document of an office program",
    b"\xd0\xcf\x11\xe0": "a document of an office program",
    b"{\\rtf": "an RTF document",
    b"PAR1": "a Parquet table",
}
"""Kinds of files that are often taken for text, by their first bytes."""


WIDE_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks of multi-byte encodings; UTF-32's comes first, as it begins with UTF-16's."""
BLANK = b" \t\r\n\v\f\0"
"""Bytes of white space, also in multi-byte encodings."""


def head_of(path: Path) -> bytes:
    """The first `HEAD_BYTES` of a file, decompressed.

    Raises:
        DataError: if it cannot be read, is empty, or is not text.
    """
    if path.is_dir():
        raise DataError(f"{path}: is a folder. Name the files in it.")
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: is not a regular file, but text is read more than once. Write it to a file first.")
    try:
        with open_text(path) as stream:
            head = stream.read(HEAD_BYTES)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    mark = next((mark for mark in (codecs.BOM_UTF8, *WIDE_MARKS) if head.startswith(mark)), b"")
    if not head.removeprefix(mark).strip(BLANK):
        raise DataError(f"{path}: is empty.")
    for beginning, what in DOCUMENTS.items():
        if head.startswith(beginning):
            raise DataError(
                f"{path}: is {what}, not text. Save it as plain text in UTF-8, a sentence in each line, or a table as "
                "tab-separated text."
            )
    if compressed := undeclared_compression(head):
        raise DataError(f"{path}: {compressed}")
    return head


def marked_encoding(head: bytes) -> str | None:
    """The multi-byte encoding whose byte order mark a file begins with; None: there is no such mark."""
    return next((encoding for mark, encoding in WIDE_MARKS.items() if head.startswith(mark)), None)


def kind_of(path: Path, head: bytes) -> PairKind | None:
    """The kind of pairs that a file holds, by its name or else its first lines; None: lines of one side."""
    named = Path(plain_name(path)).suffix.lower()
    if named in (".tsv", ".csv", ".jsonl", ".tmx"):
        return named  # type: ignore[return-value]
    if named in (".xlf", ".xliff", ".sdlxliff"):
        return ".xliff"
    text = head.decode(marked_encoding(head) or "utf-8", "replace")
    lines = [line for line in text.split("\n")[:HEAD_LINES][:-1] if line.strip()]
    if lines and sum("\t" in line for line in lines) > 0.9 * len(lines):
        return ".tsv"
    if lines and all(line.startswith("{") for line in lines[:10]) and _is_json(lines[0]):
        return ".jsonl"
    return None


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
