"""Choice of pairs held out for validation and testing, so that training sees none of their sentences."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

TRAIN, VALID, TEST, LEFT_OUT = range(4)

MOST_HELD_OUT, SHARE = 2000, 20
"""Most pairs of a held-out part, and pairs of the corpus for each of them."""

FEWEST_HELD_OUT, LARGEST_SHARE = 200, 10
"""Fewest pairs of a held-out part for a useful measurement, but at most one in so many pairs of a small corpus."""


def num_held_out(pairs: int) -> int:
    """Number of pairs of each part that is held out from a corpus of so many pairs."""
    return min(MOST_HELD_OUT, max(pairs // SHARE, min(FEWEST_HELD_OUT, pairs // LARGEST_SHARE)))


def hold_out(sides: npt.NDArray[np.uint64], num_valid: int, num_test: int, seed: int) -> npt.NDArray[np.uint8]:
    """Part of each pair, `[pairs]`: `TRAIN`, `VALID`, `TEST`; or `LEFT_OUT`, as it shares a sentence with another part.

    Pairs with sentences that occur once are drawn first, as the training text then loses no further pairs. The parts
    share no source and no target sentence.

    Args:
        sides: digests of source and target, `[pairs, 2]`.
        num_valid: pairs to draw for validation.
        num_test: pairs to draw for testing.
        seed: seed of the draw.
    """
    part = np.full(len(sides), TRAIN, np.uint8)
    order = np.random.default_rng(seed).permutation(len(sides))
    order = order[np.argsort(~_occurs_once(sides)[order], kind="stable")]
    part[order[:num_test]] = TEST
    part[order[num_test : num_test + num_valid]] = VALID
    part[(part != TEST) & _shares(sides, part == TEST)] = LEFT_OUT
    part[(part == TRAIN) & _shares(sides, part == VALID)] = LEFT_OUT
    return part


def _occurs_once(sides: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    once = np.ones(len(sides), bool)
    for column in (0, 1):
        _, places, counts = np.unique(sides[:, column], return_inverse=True, return_counts=True)
        once &= counts[places] == 1
    return once


def _shares(sides: npt.NDArray[np.uint64], held_out: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """True for pairs with the source or the target of a held-out one."""
    found = np.zeros(len(sides), bool)
    for column in (0, 1):
        found |= np.isin(sides[:, column], sides[held_out, column])
    return found
