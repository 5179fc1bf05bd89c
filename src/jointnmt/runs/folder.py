"""Atomic folders: at any moment a name refers to the complete old content, the complete new one, or nothing."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from jointnmt.errors import ConfigurationError
from jointnmt.files import sync_folder

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""Constants of Linux's renameat2."""


@contextmanager
def replacing(folder: Path, parts: Collection[str]) -> Iterator[Path]:
    """A new folder to write into, which replaces `folder` at the end, or is deleted after an error.

    It is hidden beside `folder`; a killed process leaves it there. Entries of `folder` other than `parts` are linked
    into it from the beginning: such files must be replaced, not written into. A folder that cannot be
    renamed, such as the root of a volume, is replaced entry by entry.

    Args:
        folder: the folder, which may exist; its parents are created.
        parts: names in the folder that are written again.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    others = [path for path in folder.iterdir() if path.name not in parts] if folder.exists() else []
    fixed = folder.is_dir() and (folder.is_mount() or not os.access(folder.parent, os.W_OK))
    new = (folder if fixed else folder.parent) / f".{folder.name}.new-{secrets.token_hex(4)}"
    new.mkdir()
    try:
        if folder.exists():
            shutil.copystat(folder, new)
        for path in others:
            _copy(path, new / path.name)
        yield new
        _sync(new)
        if fixed:
            for path in list(new.iterdir()):
                _exchange(path, folder / path.name)
        else:
            _exchange(new, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)  # after an exchange, it holds the old content


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A new folder to write into, which becomes `folder` at the end, or is deleted after an error.

    What a killed process has left of one is deleted.

    Raises:
        ConfigurationError: if `folder` exists and is not empty.
    """
    folder = folder.resolve()  # `.` has no name
    for place in (folder.parent, folder):
        for left in list(place.iterdir()) if place.is_dir() else ():
            if left.name.startswith(f".{folder.name}.new-"):
                shutil.rmtree(left, ignore_errors=True)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder}: exists and is not empty. Choose another folder, or delete it.")
    with replacing(folder, ()) as unfinished:
        yield unfinished


def _copy(path: Path, to: Path) -> None:
    """Copy a file, a link or a folder; files on the same disk are linked."""
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, to, symlinks=True, copy_function=_link)
    else:
        _link(str(path), str(to))


def _link(path: str, to: str) -> str:
    try:
        os.link(path, to, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copy2(path, to, follow_symlinks=False)
    return to


def _exchange(new: Path, old: Path) -> None:
    """Exchange the names of two files or folders, atomically where the system can; `old` may be missing."""
    if not os.path.lexists(old):
        new.rename(old)
        return
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux
    names = os.fsencode(new), os.fsencode(old)
    if rename is None or rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0:
        aside = new.with_name(f"{new.name}.old")
        old.rename(aside)
        new.rename(old)
        aside.rename(new)


def _sync(folder: Path) -> None:
    """Wait until everything in a folder is on disk."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for path in (folder, *folder.rglob("*/")):
        sync_folder(path)
