"""The batches of training: which sentence pairs are computed together, in which order, and by which process.

Everything else (validation, translation, scoring, probes) takes its batches from `plan_batches` (`length_buckets.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jointnmt.data.batch import Batch, BatchPart
from jointnmt.data.length_buckets import BatchConfig, by_length, cut, lengths_of
from jointnmt.data.store import SegmentedText
from jointnmt.errors import ConfigurationError

Lengths = npt.NDArray[np.integer[Any]]
Indices = npt.NDArray[np.integer[Any]]
UpdateBatches = list[Indices]

POOL_PAIRS = 2**20
"""Pairs sorted by length together: more give less padding, and take more memory."""


def plan_epoch(
    source_lengths: Lengths,
    target_lengths: Lengths,
    config: BatchConfig,
    seed: int,
    epoch: int,
    origin: Callable[[int], str] = "pair {}".format,
) -> list[UpdateBatches]:
    """The updates of an epoch, each a list of batches, each an array of pair numbers; every pair occurs once.

    Pairs are shuffled, sorted by length in pools of `POOL_PAIRS`, and cut into batches, large and with little padding.
    Their overhead is drawn at random, so that batches do not end at the same lengths, with the same sentences, in every
    epoch. The batches of a pool are shuffled and dealt to updates: each update takes the next batches until
    `update_tokens` is reached. A pure function of its arguments, independent of the number of processes.
    Takes 4 bytes per pair and about 100 per batch, and a second for some 400,000 pairs.

    Args:
        source_lengths: tokens of each pair's source, end mark counted.
        target_lengths: likewise.
        origin: names a pair in an error message, as `TokenStore.origin` does.

    Raises:
        ConfigurationError: if a pair exceeds a limit by itself.
    """
    if not len(source_lengths):
        return []
    _require_fit(source_lengths, target_lengths, config, origin)
    generator = np.random.default_rng([seed, epoch])
    order = np.arange(len(source_lengths), dtype=np.int32)
    generator.shuffle(order)
    batches: list[Indices] = []
    for pool in np.array_split(order, math.ceil(len(order) / POOL_PAIRS)):
        source, target = (lengths_of(lengths[pool]) for lengths in (source_lengths, target_lengths))
        sorted_pairs = by_length(source, target)
        pool[:] = pool[sorted_pairs.numpy()]
        overhead_cells = lambda: config.overhead_cells * generator.uniform(0, 2)  # noqa: E731
        bounds = cut(source[sorted_pairs], target[sorted_pairs], config, overhead_cells)
        divided = np.split(pool, bounds)
        batches += [divided[number] for number in generator.permutation(len(divided))]
    return _deal(batches, target_lengths, config.update_tokens)


@dataclass(frozen=True)
class Share:
    """Consecutive pairs of a batch of an update, which one process computes."""

    pairs: Indices
    begin: int
    """Where they begin in the batch."""
    batch: Indices


def shard(update: Sequence[Indices], lengths: tuple[Lengths, Lengths], rank: int, world: int) -> list[Share]:
    """The share of an update that process `rank` of `world` computes; the shares together are the update.

    Pairs are assigned in order, by cumulated padded cells, so that all processes have the same work to within a pair,
    and at most `world - 1` batches are split. With too few pairs, a process may get an empty list.
    """
    costs = [int(lengths[0][batch].max()) * int(lengths[1][batch].max()) for batch in update]
    total = sum(cost * len(batch) for cost, batch in zip(costs, update, strict=True))
    part: list[Share] = []
    done = 0
    for cost, batch in zip(costs, update, strict=True):
        # A pair goes to the process in whose interval of cumulated cells its middle lies.
        middles = done + cost * np.arange(len(batch), dtype=np.int64) + cost // 2
        owners = middles * world // total
        if len(mine := np.flatnonzero(owners == rank)):
            part.append(Share(batch[mine], int(mine[0]), batch))
        done += cost * len(batch)
    return part


def load_share(text: SegmentedText, share: Share) -> Batch:
    """The pairs of a share, padded as in their batch, so that they are computed as they are in it."""
    if len(share.pairs) == len(share.batch):
        return load(text, share.pairs)
    numbers = share.pairs.tolist()
    sources, targets = zip(*text.pairs(numbers), strict=True)
    widths = int(text.lengths[0][share.batch].max()), int(text.lengths[1][share.batch].max())
    part = BatchPart(share.begin, len(share.batch), int(share.batch[0]))
    return Batch.collate(sources, targets, numbers, widths, part)


def load(text: SegmentedText, indices: Sequence[int] | Indices) -> Batch:
    """The pairs with these numbers, as a batch."""
    numbers = [int(index) for index in indices]
    sources, targets = zip(*text.pairs(numbers), strict=True)
    return Batch.collate(sources, targets, numbers)


def _require_fit(source: Lengths, target: Lengths, config: BatchConfig, origin: Callable[[int], str]) -> None:
    pools = [slice(begin, begin + POOL_PAIRS) for begin in range(0, len(source), POOL_PAIRS)]
    sizes_of: dict[str, Callable[[slice], Lengths]] = {
        "max_tokens": lambda pool: np.maximum(source[pool], target[pool]),
        "update_tokens": lambda pool: target[pool],
        "max_cells": lambda pool: source[pool].astype(np.int64) * target[pool],
    }
    for name, sizes in sizes_of.items():
        limit = getattr(config, name)
        if limit is not None and any((sizes(pool) > limit).any() for pool in pools):
            every = sizes(slice(None))
            beyond = np.flatnonzero(every > limit)
            first, most = int(beyond[0]), int(every.max())
            raise ConfigurationError(
                f"batches.{name}={limit} is too small for {len(beyond)} of {len(source)} sentence pairs by "
                f"themselves, the first being {origin(first)} ({source[first]} source and {target[first]} target "
                f"tokens). Set batches.{name} to {most} or more, or leave out long pairs with data.filters.max_length."
            )


def _deal(batches: Sequence[Indices], target_lengths: Lengths, update_tokens: int) -> list[UpdateBatches]:
    updates: list[UpdateBatches] = []
    room = -1
    for batch in batches:
        tokens = int(target_lengths[batch].sum())
        if tokens > room:
            updates.append([])
            room = update_tokens
        updates[-1].append(batch)
        room -= tokens
    return updates
