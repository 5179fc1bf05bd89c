"""The pairs of an epoch: each once, or as often as the weight of its text says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from jointnmt.data.batches import EpochPlan, Indices
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.data.order import IndexArray, shuffled
from jointnmt.data.store import SegmentedText, TokenStore


def plan_mixture(store: TokenStore, text: SegmentedText, config: BatchConfig, seed: int, epoch: int) -> EpochPlan:
    """The plan of an epoch that has the pairs of each text as often as its weight says.

    A pure function of its arguments.

    Args:
        store: the pairs, with the weights of their texts.
        text: the same pairs, as segmented in this epoch.
        config: sizes of batches and updates.
        seed: seed of the order.
        epoch: number of the epoch, from 0.

    Raises:
        ConfigurationError: if a pair exceeds a limit of `config` by itself.
    """
    pairs = None if _is_plain(store) else WeightedPairs(store.text_sizes(), store.weights, seed, epoch)
    return EpochPlan(text.lengths, config, seed, epoch, store.origin, pairs)


def epoch_pairs(store: TokenStore) -> float:
    """Number of pairs of an epoch, repeated ones counted as often as they occur."""
    if _is_plain(store):
        return len(store)
    return sum(size * weight for size, weight in zip(store.text_sizes(), store.weights, strict=True))


def _is_plain(store: TokenStore) -> bool:
    return set(store.weights) == {1.0}


class WeightedPairs:
    """The numbers of the pairs of an epoch, each repeated by the weight of its text, without a list of them.

    With a fractional weight such as a quarter, an epoch has a quarter of the pairs, rounded, and at least one: four
    epochs have nearly all of them. The next epoch continues after them, in an order that is drawn again once all pairs
    have occurred.

    Args:
        sizes: numbers of pairs of the texts, which follow each other.
        weights: weights of the texts.
        seed: seed of the order.
        epoch: number of the epoch, from 0.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int, epoch: int) -> None:
        self._parts: list[_Part] = []
        counts = []
        for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
            before, whole = sum(sizes[:number]), int(weight)
            if size and whole:
                counts.append(whole * size)
                self._parts.append(_Part(before, size))
            if count := max(round((weight - whole) * size), 0 if whole or not size else 1):
                for cycle, first, many in _turns(epoch * count, (epoch + 1) * count, size):
                    counts.append(many)
                    self._parts.append(_Part(before, size, first, shuffled(size, [seed, number, cycle])))
        self._starts = np.array([0, *accumulate(counts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __call__(self, positions: Indices) -> Indices:
        """The pairs at these positions."""
        found = np.empty(len(positions), np.int64)
        of_part = np.searchsorted(self._starts, positions, side="right") - 1
        for number, part in enumerate(self._parts):
            where = np.flatnonzero(of_part == number)
            found[where] = part.pairs(positions[where].astype(np.int64) - self._starts[number])
        return found


@dataclass(frozen=True)
class _Part:
    """Pairs of a text, from `first` on, cyclically."""

    before: int
    """Number of pairs of the texts before it."""
    size: int
    """Number of pairs of the text."""
    first: int = 0
    order: Callable[[IndexArray], IndexArray] | None = None
    """Order of the pairs; None: that of the text."""

    def pairs(self, places: IndexArray) -> IndexArray:
        """The numbers of the pairs at these places of the part."""
        places = (self.first + places) % self.size
        return self.before + (places if self.order is None else self.order(places))


def _turns(begin: int, end: int, size: int) -> list[tuple[int, int, int]]:
    """Positions from `begin` to `end` divided into cycles of `size` pairs: cycle, first position in it, number."""
    found = []
    for cycle in range(begin // size, (end - 1) // size + 1):
        first, last = max(begin, cycle * size), min(end, (cycle + 1) * size)
        found.append((cycle, first - cycle * size, last - first))
    return found
