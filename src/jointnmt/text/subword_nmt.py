"""Files of subword-nmt (Sennrich et al. 2016): codes, which are the merges of a BPE, and vocabularies with counts.

In these files, `</w>` ends the last piece of a word, and `@@` any other piece. Here a space mark ends the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jointnmt.errors import DataError, reason
from jointnmt.text.pieces import SPACE

VERSION = "#version: 0.2"
END, CONTINUES = "</w>", "@@"


def read_codes(path: Path) -> list[tuple[str, str]]:
    """The merges in the order in which they were learnt, each once.

    Merges of a space mark are left out, as text has none (`text.preprocessing`).

    Raises:
        DataError: if the file cannot be read, or has other merges than those of `subword-nmt learn-bpe`, version 0.2.
    """
    lines = _lines(path)
    if (first := next(lines, "")) != VERSION:
        raise DataError(
            f"{path}: begins with {first[:60]!r}, not with {VERSION!r}: no codes of `subword-nmt learn-bpe`, or "
            "those of version 0.1, which ends words otherwise. Learn them again, by subword-nmt 0.3 or later."
        )
    merges = dict[tuple[str, str], None]()
    made = set[str]()
    for number, line in enumerate(lines, start=2):
        left, _, right = line.partition(" ")
        ended = right.removesuffix(END) + SPACE if right.endswith(END) else right
        if not left or right in ("", END) or " " in right:
            raise DataError(f"{path}:{number}: {line[:60]!r} is not a merge, two pieces with a space between them.")
        if SPACE in left + right:
            continue
        for piece in (left, ended):
            if len(piece.removesuffix(SPACE)) > 1 and piece not in made:
                raise DataError(f"{path}:{number}: merges {piece[:60]!r}, which no line before it makes. Is it whole?")
        merges[left, ended] = None
        made.add(left + ended)
    if not merges:
        raise DataError(f"{path}: has no merges. Give codes of `subword-nmt learn-bpe`.")
    return [*merges]


def read_counts(path: Path) -> dict[str, int]:
    """The pieces of a vocabulary and their counts.

    Raises:
        DataError: if the file cannot be read, or is not a vocabulary of `subword-nmt get-vocab`.
    """
    counts: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        piece, _, count = line.rpartition(" ")
        if not piece or " " in piece or not (count.isascii() and count.isdecimal()):
            raise DataError(
                f"{path}:{number}: {line[:60]!r} is not a piece and its count, as of `subword-nmt get-vocab`."
            )
        if SPACE not in piece:
            name = piece.removesuffix(CONTINUES) if piece != CONTINUES and piece.endswith(CONTINUES) else piece + SPACE
            counts[name] = int(count)
    return counts


def _lines(path: Path) -> Iterator[str]:
    """Lines of a small file, split at line feeds alone, as pieces may be other separators of lines."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}. Check the path in segmentation.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not text in UTF-8. Give a file of subword-nmt.") from error
    return (line.strip("\r ") for line in text.removesuffix("\n").split("\n"))
