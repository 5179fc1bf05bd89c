"""Which files are compressed, as their names say, capitals or not, or as they begin."""

from __future__ import annotations

import re
from pathlib import PurePath

COMPRESSED = (".gz", ".xz", ".bz2")
"""Endings of names of compressed files, which are decompressed while they are read."""

BEGINNINGS = {
    re.compile(rb"\x1f\x8b"): ("gzip", ".gz"),
    re.compile(rb"\xfd7zXZ\0"): ("xz", ".xz"),
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): ("bzip2", ".bz2"),
    re.compile(rb"\x28\xb5\x2f\xfd"): ("zstd", ""),
}
"""Bytes that compressed files begin with: by what, and the ending that has them read; empty: nothing has."""


def undeclared_compression(beginning: bytes) -> str:
    """What to say of text that begins so: that it is compressed; empty: it is not."""
    for pattern, (name, ending) in BEGINNINGS.items():
        if pattern.match(beginning):
            return f"is compressed by {name}. Decompress it" + (
                f", or let its name end in {ending}." if ending else "."
            )
    return ""


def compression_of(path: PurePath) -> str:
    """The ending of `COMPRESSED` that a name has, in lower case; empty: it has none."""
    suffix = path.suffix.lower()
    return suffix if suffix in COMPRESSED else ""


def plain_name(path: PurePath) -> str:
    """The name of a file without such an ending."""
    return path.stem if compression_of(path) else path.name
