"""What an epoch has of each text: all pairs once, or as often as the texts' weights say."""

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
        text: the same pairs, as they are segmented in this epoch.
        config: sizes of batches and updates.
        seed: of the order.
        epoch: from 0.

    Raises:
        ConfigurationError: if a pair exceeds a limit of `config` by itself.
    """
    pairs = None if _is_plain(store) else WeightedPairs(store.text_sizes(), store.weights, seed, epoch)
    return EpochPlan(text.lengths, config, seed, epoch, store.origin, pairs)


def epoch_pairs(store: TokenStore) -> float:
    """Pairs of an epoch, repeated ones counted as often as they occur."""
    if _is_plain(store):
        return len(store)
    return sum(size * weight for size, weight in zip(store.text_sizes(), store.weights, strict=True))


def _is_plain(store: TokenStore) -> bool:
    return set(store.weights) == {1.0}


class WeightedPairs:
    """The numbers of the pairs of an epoch, those of a text with weight 3 three times, without a list of them.

    Of a fraction, such as a quarter, an epoch has a quarter of the pairs, rounded, and one at least: four epochs have
    nearly all of them. The next epoch goes on behind them, in an order that is drawn anew each time all have had their
    turn.

    Args:
        sizes: how many pairs there are of each text; they follow each other.
        weights: of the texts.
        seed: of the order.
        epoch: from 0.
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
    """Pairs of a text, from the first one on, again and again."""

    before: int
    """Pairs of the texts before it."""
    size: int
    """Of the text."""
    first: int = 0
    order: Callable[[IndexArray], IndexArray] | None = None
    """None: as they stand."""

    def pairs(self, places: IndexArray) -> IndexArray:
        """The numbers of the pairs at these places of the part."""
        places = (self.first + places) % self.size
        return self.before + (places if self.order is None else self.order(places))


def _turns(begin: int, end: int, size: int) -> list[tuple[int, int, int]]:
    """Turns of a text of so many pairs, divided at the ends of its cycles: cycle, first turn in it, how many."""
    found = []
    for cycle in range(begin // size, (end - 1) // size + 1):
        first, last = max(begin, cycle * size), min(end, (cycle + 1) * size)
        found.append((cycle, first - cycle * size, last - first))
    return found
