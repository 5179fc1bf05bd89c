"""Seeded damage to a file: flipped bits, lost ends, swapped content."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[bytes, random.Random], bytes]


def flip(content: bytes, dice: random.Random) -> bytes:
    """Flip one bit, like a bad disk or memory."""
    place = dice.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << dice.randrange(8)]) + content[place + 1 :]


def truncate(content: bytes, dice: random.Random) -> bytes:
    """Cut off the end: all of the file, one byte, or some."""
    return content[: dice.choice([0, len(content) - 1, dice.randrange(len(content))])]


def blank(content: bytes, dice: random.Random) -> bytes:
    """Fill a block with zeros, like some file systems after a crash of the machine."""
    place = dice.randrange(len(content))
    length = min(dice.choice([1, 16, 512]), len(content) - place)
    return content[:place] + bytes(length) + content[place + length :]


def swap_blocks(content: bytes, dice: random.Random) -> bytes:
    """Swap two blocks of the file."""
    size = max(1, min(dice.choice([1, 8, 64, 512]), len(content) // 3))
    one = dice.randrange(max(1, len(content) - 2 * size))
    other = dice.randrange(one + size, max(one + size + 1, len(content) - size + 1))
    middle = content[one + size : other]
    return content[:one] + content[other : other + size] + middle + content[one : one + size] + content[other + size :]


DAMAGES: dict[str, Damage] = {
    "bit flipped": flip,
    "truncated": truncate,
    "zeros in it": blank,
    "blocks swapped": swap_blocks,
}


def damage(path: Path, kind: str, dice: random.Random) -> bool:
    """Damage a file; whether it has changed, which an empty one cannot."""
    content = path.read_bytes()
    changed = DAMAGES[kind](content, dice) if content else content
    path.write_bytes(changed)
    return changed != content


def swap(one: Path, other: Path) -> None:
    """Swap the content of two files."""
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
