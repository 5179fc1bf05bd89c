"""Atomic file writes: at any moment a file has all of its old content, or all of its new content. Hashes of files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path

LOCK_SECONDS = 0.02
"""Between two attempts to lock a folder: others hold it for a moment, or, like `flock FOLDER`, for long."""


@contextmanager
def replaced(path: Path, shared: bool = False) -> Iterator[Path]:
    """A temporary path for the new content of a file; it replaces the file on exit, or is deleted after an error.

    A killed process leaves this hidden file, which the next writer of the same file overwrites; with `shared`, several
    processes may write at the same time, each to a path of its own, and a later writer deletes what is left.
    """
    unfinished = path.with_name(f".{path.name}.new")
    if shared:
        remove_unfinished(path.parent, f".{escape(path.name)}.????????.new")
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    with _lock(path.parent, fcntl.LOCK_SH, attempts=50):
        try:
            yield unfinished
            publish(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)  # left only if writing failed


def remove_unfinished(folder: Path, *patterns: str) -> None:
    """Delete the files that killed processes have left in a folder, unless a process is writing to it by `replaced`.

    Those that cannot be deleted stay.

    Args:
        folder: the folder.
        patterns: patterns of their names.
    """
    with _lock(folder, fcntl.LOCK_EX, attempts=1) as is_held:
        for left in (path for pattern in patterns for path in folder.glob(pattern)) if is_held else ():
            if left.is_file():
                with suppress(OSError):
                    left.unlink()


@contextmanager
def _lock(folder: Path, kind: int, attempts: int) -> Iterator[bool]:
    """A lock on a folder, which the system releases when the process ends; whether it is held, as it may fail."""
    held = False
    with ExitStack() as opened:
        with suppress(OSError):  # no such folder, as writing to it tells, or no locks there
            descriptor = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, descriptor)
            held = any(_locked(descriptor, kind) for _ in range(attempts))
        yield held


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(LOCK_SECONDS)
        return False
    return True


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
    sync_folder(path.parent)


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal.

    Raises:
        OSError: if it cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
