"""Files that are whole: at any moment a name stands for all of the old content, or of the new."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: Path, shared: bool = False) -> Iterator[Path]:
    """A path beside a file to write its new content to, which takes its place at the end, or is deleted after an error.

    A killed process leaves it there, hidden; the next one that writes the same file takes its place, unless such
    processes may write at the same time (`shared`), each of which has a path of its own.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new" if shared else f".{path.name}.new")
    try:
        yield unfinished
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)  # left only if writing failed


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; one that it replaces hands its permissions on.

    Links are followed. What is no file, such as a pipe, is written as it stands.

    Raises:
        OSError: if it cannot be written; no partial file is left, and one that was there stays as it is.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    with replaced(path) as unfinished:
        unfinished.touch()
        if path.exists():
            shutil.copymode(path, unfinished)
        unfinished.write_text(text, encoding="utf-8")


def publish(unfinished: Path, path: Path) -> None:
    """Rename a finished file to its final name, its content synced to disk before."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
