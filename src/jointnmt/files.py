"""Atomic file writes: at any moment a file has all of its old content, or all of its new content."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: Path, shared: bool = False) -> Iterator[Path]:
    """A temporary path for the new content of a file; it replaces the file on exit, or is deleted after an error.

    A killed process leaves this hidden file, which the next writer of the same file overwrites; with `shared`, several
    processes may write at the same time, each to a path of its own.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new" if shared else f".{path.name}.new")
    try:
        yield unfinished
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)  # left only if writing failed


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, with the permissions of the file that it replaces.

    Links are followed. Anything but a regular file, such as a pipe, is written directly.

    Raises:
        OSError: if it cannot be written; no partial file is left, and an existing one is unchanged.
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
    """Sync a finished file to disk and rename it to its final name."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
