"""Which files are compressed, as their names say; capitals make no difference."""

from __future__ import annotations

from pathlib import PurePath

COMPRESSED = (".gz", ".xz", ".bz2")
"""Endings of names of compressed files, which are decompressed while they are read."""


def compression_of(path: PurePath) -> str:
    """The ending of `COMPRESSED` that a name has, in lower case; empty: it has none."""
    suffix = path.suffix.lower()
    return suffix if suffix in COMPRESSED else ""


def plain_name(path: PurePath) -> str:
    """The name of a file without such an ending."""
    return path.stem if compression_of(path) else path.name
