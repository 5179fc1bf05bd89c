"""Random choices that are the same on every machine and in every version of Python."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Choices made with `Random.random` alone: the one method whose sequence Python promises never to change."""

    def __init__(self, random: Random) -> None:
        self._random = random.random

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, all equally likely."""
        return choices[int(self._random() * len(choices))]

    def weigh(self, choices: Sequence[tuple[T, int]]) -> T:
        """One of the choices, each as likely as its weight says: whole numbers, whose sum is exact."""
        point = int(self._random() * sum(weight for _, weight in choices))
        for choice, weight in choices:
            point -= weight
            if point < 0:
                return choice
        raise ValueError("nothing to choose from")
