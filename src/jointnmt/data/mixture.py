"""What an epoch has of each text: all pairs once, or as often as the texts' weights say."""

from __future__ import annotations

import numpy as np

from jointnmt.data.batches import Indices, UpdateBatches, plan_epoch
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.data.store import SegmentedText, TokenStore


def plan_mixture(
    store: TokenStore, text: SegmentedText, config: BatchConfig, seed: int, epoch: int
) -> list[UpdateBatches]:
    """The updates of an epoch, as of `plan_epoch`, with the pairs of each text as often as its weight says.

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
    if set(store.weights) == {1.0}:
        return plan_epoch(*text.lengths, config, seed, epoch, store.origin)
    pairs = weighted_pairs(store.text_numbers(), store.weights, seed, epoch)
    source, target = (lengths[pairs] for lengths in text.lengths)
    updates = plan_epoch(source, target, config, seed, epoch, lambda number: store.origin(int(pairs[number])))
    return [[pairs[batch] for batch in update] for update in updates]


def epoch_pairs(store: TokenStore) -> float:
    """Pairs of an epoch, repeated ones counted as often as they occur."""
    if set(store.weights) == {1.0}:
        return len(store)
    return float(np.asarray(store.weights)[store.text_numbers()].sum())


def weighted_pairs(texts: Indices, weights: tuple[float, ...], seed: int, epoch: int) -> Indices:
    """The numbers of the pairs of an epoch, those of a text with weight 3 three times.

    Of a fraction, such as a quarter, an epoch has a quarter of the pairs: four epochs have all of them, in an order
    that is drawn anew each time all have had their turn. It has one pair of a text at least.

    Args:
        texts: `[n]`, the text that each pair is of.
        weights: of the texts.
        seed: of the order.
        epoch: from 0.
    """
    parts: list[Indices] = []
    for number, weight in enumerate(weights):
        pairs = np.flatnonzero(texts == number).astype(np.int32)
        whole = int(weight)
        parts += [pairs] * whole
        if count := max(round((weight - whole) * len(pairs)), 0 if whole or not len(pairs) else 1):
            turns = np.arange(epoch * count, (epoch + 1) * count)
            for cycle in np.unique(turns // len(pairs)):
                order = np.random.default_rng([seed, number, int(cycle)]).permutation(len(pairs))
                parts.append(pairs[order[turns[turns // len(pairs) == cycle] % len(pairs)]])
    return np.concatenate(parts)
