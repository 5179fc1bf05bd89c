"""Detection of compressed files by the ending of their names, in any case, or by their first bytes."""

from __future__ import annotations

import re
from pathlib import PurePath

COMPRESSED = (".gz", ".xz", ".bz2")
"""Endings of names of files that are decompressed while they are read."""

BEGINNINGS = {
    re.compile(rb"\x1f\x8b"): ("gzip", ".gz"),
    re.compile(rb"\xfd7zXZ\0"): ("xz", ".xz"),
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): ("bzip2", ".bz2"),
    re.compile(rb"\x28\xb5\x2f\xfd"): ("zstd", ""),
}
"""First bytes of compressed files, with the format and the ending that it needs to be read; empty: unsupported."""


def undeclared_compression(beginning: bytes) -> str:
    """A message if text with this beginning is compressed; else empty."""
    for pattern, (name, ending) in BEGINNINGS.items():
        if pattern.match(beginning):
            return f"is compressed by {name}. Decompress it" + (
                f", or let its name end in {ending}." if ending else "."
            )
    return ""


def compression_of(path: PurePath) -> str:
    """The ending in `COMPRESSED` of a name, in lower case; empty if it has none."""
    suffix = path.suffix.lower()
    return suffix if suffix in COMPRESSED else ""


def plain_name(path: PurePath) -> str:
    """The name of a file without an ending in `COMPRESSED`."""
    return path.stem if compression_of(path) else path.name
