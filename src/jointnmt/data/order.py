"""Seeded permutations of many numbers that need no list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

IndexArray = npt.NDArray[np.int64]

ROUNDS = 8
"""Rounds of the Feistel network; each half of the bits is changed in every other round."""

LISTED = 2**20
"""Up to so many numbers are shuffled as a list, which is faster and needs little memory."""


def shuffled(size: int, seed: Sequence[int]) -> Callable[[IndexArray], IndexArray]:
    """A permutation of the numbers below `size`, as a function from positions to numbers."""
    if size <= LISTED:
        return np.random.default_rng(seed).permutation(size).__getitem__
    return FeistelOrder(size, seed)


class FeistelOrder:
    """A permutation of the numbers below `size` that needs no memory.

    A Feistel network permutes the numbers of a given bit length: it changes each half of the bits in turn by a hash of
    the other half and a key, which is invertible. A number outside the range is permuted again until it is inside
    ("cycle walking": Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"). With an odd number of bits the
    halves differ by one, so that less than half of the numbers are outside the range. The hash is the finaliser of
    SplitMix64 (Steele, Lea and Flood 2014).
    """

    def __init__(self, size: int, seed: Sequence[int]) -> None:
        bits = max(2, (size - 1).bit_length())
        self._size = size
        self._low_bits = bits // 2
        self._low, self._high = (np.uint64(2**some - 1) for some in (self._low_bits, bits - self._low_bits))
        self._keys = np.random.SeedSequence(seed).generate_state(ROUNDS, np.uint64)

    def __call__(self, positions: IndexArray) -> IndexArray:
        """The numbers at these positions."""
        numbers = self._permute(positions.astype(np.uint64))
        while len(outside := np.flatnonzero(numbers >= self._size)):
            numbers[outside] = self._permute(numbers[outside])
        return numbers.astype(np.int64)

    def _permute(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        high, low = numbers >> np.uint64(self._low_bits), numbers & self._low
        for number, key in enumerate(self._keys):
            if number % 2:
                low = low ^ (_hash(high + key) & self._low)
            else:
                high = high ^ (_hash(low + key) & self._high)
        return high << np.uint64(self._low_bits) | low


def _hash(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)
