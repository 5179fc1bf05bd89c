"""Exact sign-flip test of paired differences between two systems."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

NEGLIGIBLE = 1e-40
"""Probability below which a sum is dropped; with thousands of differences, nearly all sums are so rare."""


def sign_flip_p_value(differences: Iterable[int]) -> float:
    """The two-sided p-value of independent differences, whose signs are random if the systems are alike.

    The share of all choices of signs whose sum is at least as far from 0 as the observed one (Fisher's randomisation
    test, 1935), computed exactly, not sampled. With differences of one size it is the exact McNemar test (1947).
    """
    given = [each for each in differences if each]
    observed = abs(sum(given))
    if not observed:
        return 1.0
    sums = _sums_of_random_signs(Counter(map(abs, given)))
    return 2 * math.fsum(share for total, share in sums.items() if total >= observed)


def _sums_of_random_signs(sizes: Mapping[int, int]) -> dict[int, float]:
    """The distribution of the sum of numbers with random signs, given how many there are of each size."""
    found = {0: 1.0}
    for size, count in sizes.items():
        shares = [(positive, share) for positive, share in enumerate(_binomial(count)) if share > NEGLIGIBLE]
        signed = [(size * (2 * positive - count), share) for positive, share in shares]
        summed: dict[int, float] = defaultdict(float)
        for total, probability in found.items():
            for more, share in signed:
                summed[total + more] += probability * share
        found = {total: share for total, share in summed.items() if share > NEGLIGIBLE}
    return found


def _binomial(count: int) -> Iterator[float]:
    """The probabilities of 0 to `count` heads of a fair coin, from integers, which do not underflow."""
    ways, choices = 1, 2**count
    for heads in range(count + 1):
        yield ways / choices
        ways = ways * (count - heads) // (heads + 1)
