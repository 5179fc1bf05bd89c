"""Copies of training pairs with other numbers, from which a model can learn to copy numbers.

Text with few numbers does not teach that, however they are segmented (docs/own-text.md says what the copies bring).
"""

from __future__ import annotations

import re
from random import Random

COPIES = 8
"""Most copies of a pair."""
MOST_COPIES = 0.05
"""Most copies of all pairs, as a share of the training pairs: text with many numbers needs none."""

NUMBER = re.compile(r"[0-9]+")
WITH_LETTERS = re.compile(r"[0-9][^\W\d_]|[^\W\d_][0-9]")
"""A digit beside a letter, as in `2nd` or `80s`: other digits might need other letters."""
KEPT = ("0", "1")
"""Numbers that words agree with."""


def num_copies(with_numbers: int, pairs: int) -> int:
    """How often each of the pairs with numbers is copied, of so many training pairs; 0: there are enough numbers."""
    return min(COPIES, int(MOST_COPIES * pairs / with_numbers)) if with_numbers else 0


def has_numbers(source: str, target: str) -> bool:
    """Whether both sides have the same numbers, and others would fit as well."""
    numbers = sorted(NUMBER.findall(source))
    return (
        any(number not in KEPT for number in numbers)
        and numbers == sorted(NUMBER.findall(target))
        and not any(map(WITH_LETTERS.search, (source, target)))
    )


def with_other_numbers(source: str, target: str, random: Random) -> tuple[str, str]:
    """The pair with each number replaced, the same on both sides, by a drawn one of as many digits."""
    drawn: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        return drawn.setdefault(found[0], _other(found[0], random))

    return NUMBER.sub(other, source), NUMBER.sub(other, target)


def _other(number: str, random: Random) -> str:
    if number in KEPT:
        return number
    first = "0" if number[0] == "0" else random.choice("23456789" if len(number) == 1 else "123456789")
    return first + "".join(random.choices("0123456789", k=len(number) - 1))
