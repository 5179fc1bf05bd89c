"""Batches of training: which sentence pairs are computed together, in which order, and by which process.

All other computations (validation, translation, scoring, probes) use `plan_batches` (`length_buckets.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from jointnmt.data.batch import Batch, BatchPart
from jointnmt.data.length_buckets import BatchConfig, by_length, cut, lengths_of
from jointnmt.data.order import FeistelOrder
from jointnmt.data.store import SegmentedText
from jointnmt.errors import ConfigurationError

Lengths = npt.NDArray[np.integer[Any]]
Indices = npt.NDArray[np.integer[Any]]
UpdateBatches = list[Indices]


class PairsOfEpoch(Protocol):
    """The pairs of an epoch in a fixed order; some may occur more than once."""

    def __len__(self) -> int: ...

    def __call__(self, positions: Indices) -> Indices:
        """The numbers of the pairs at these positions."""


POOL_PAIRS = 2**20
"""Pairs that are sorted by length together: more give less padding but need more memory."""


class EpochPlan:
    """The updates of an epoch, each a list of batches, each an array of pair numbers; every pair occurs once, or as
    often as `pairs` has it.

    Pairs are shuffled, sorted by length in pools of `POOL_PAIRS`, and cut into batches, large and with little padding.
    The overhead of a batch is drawn at random, so that batches do not end at the same lengths, with the same sentences,
    in every epoch. The batches of a pool are shuffled and assigned to updates: each update takes the next batches until
    `update_tokens` is reached. A pure function of its arguments, independent of the number of processes.

    A pool is planned when it is first used and dropped afterwards, so the plan needs the memory of one pool, however
    many pairs there are. Counting the updates plans all pools once: a second for about three million pairs.

    Args:
        lengths: tokens of each pair's source and target, end mark included.
        config: sizes of batches and updates.
        seed: seed of the order.
        epoch: number of the epoch, from 0.
        origin: names a pair in an error message, as `TokenStore.origin` does.
        pairs: the pairs of the epoch, unless each pair occurs once.

    Raises:
        ConfigurationError: if a pair exceeds a limit by itself.
    """

    def __init__(
        self,
        lengths: tuple[Lengths, Lengths],
        config: BatchConfig,
        seed: int,
        epoch: int,
        origin: Callable[[int], str] = "pair {}".format,
        pairs: PairsOfEpoch | None = None,
    ) -> None:
        _require_fit(*lengths, config, origin)
        self._lengths, self._config, self._seed = lengths, config, (seed, epoch)
        self._pairs = pairs
        self._size = len(lengths[0]) if pairs is None else len(pairs)
        self._pools = math.ceil(self._size / POOL_PAIRS)
        self._order = FeistelOrder(self._size, self._seed) if self._pools > 1 else None
        self._planned: tuple[int, list[UpdateBatches]] = (-1, [])

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[UpdateBatches]:
        return self.since(0)

    def since(self, update: int) -> Iterator[UpdateBatches]:
        """The updates from this one on, counted from 0."""
        for pool in range(self._pools):
            if update and update >= self._counts[pool]:
                update -= self._counts[pool]
            else:
                yield from self._updates(pool)[update:]
                update = 0

    @cached_property
    def _counts(self) -> list[int]:
        """Number of updates of each pool."""
        return [len(self._updates(pool)) for pool in range(self._pools)]

    def _updates(self, pool: int) -> list[UpdateBatches]:
        """Updates of a pool; those of the pool that was planned last are cached."""
        number, updates = self._planned  # other threads may plan, too
        if number != pool:
            updates = self._plan(pool)
            self._planned = pool, updates
        return updates

    def _positions(self, pool: int) -> tuple[np.random.Generator, Indices]:
        """The pool's random generator, and its positions among the pairs of the epoch."""
        if self._order is None:
            generator = np.random.default_rng(self._seed)
            positions = np.arange(self._size, dtype=np.int32)
            generator.shuffle(positions)
            return generator, positions
        begin, end = (number * self._size // self._pools for number in (pool, pool + 1))
        return np.random.default_rng([*self._seed, pool]), self._order(np.arange(begin, end))

    def _plan(self, pool: int) -> list[UpdateBatches]:
        generator, positions = self._positions(pool)
        pairs = positions if self._pairs is None else self._pairs(positions)
        source, target = (lengths_of(lengths[pairs]) for lengths in self._lengths)
        sorted_pairs = by_length(source, target)
        pairs = pairs[sorted_pairs.numpy()]
        overhead_cells = lambda: self._config.overhead_cells * generator.uniform(0, 2)  # noqa: E731
        bounds = cut(source[sorted_pairs], target[sorted_pairs], self._config, overhead_cells)
        divided = np.split(pairs, bounds)
        batches = [divided[number] for number in generator.permutation(len(divided))]
        return _deal(batches, self._lengths[1], self._config.update_tokens)


def plan_epoch(
    source_lengths: Lengths,
    target_lengths: Lengths,
    config: BatchConfig,
    seed: int,
    epoch: int,
    origin: Callable[[int], str] = "pair {}".format,
) -> list[UpdateBatches]:
    """All updates of an `EpochPlan` that has each pair once, as a list; for small corpora."""
    return list(EpochPlan((source_lengths, target_lengths), config, seed, epoch, origin))


@dataclass(frozen=True)
class Share:
    """Consecutive pairs of a batch of an update, which one process computes."""

    pairs: Indices
    begin: int
    """Position of the first of them in the batch."""
    batch: Indices
    counts: bool = True
    """Whether they are part of the update, or a dummy that keeps the processes synchronised (see `shard_each`)."""


def shard(update: Sequence[Indices], lengths: tuple[Lengths, Lengths], rank: int, world: int) -> list[Share]:
    """The share of an update that process `rank` of `world` computes; the shares together are the update.

    Pairs are assigned in order, by cumulative padded cells, so that all processes have the same work to within a pair,
    and at most `world - 1` batches are split. With too few pairs, a process may get an empty list.
    """
    costs = [int(lengths[0][batch].max()) * int(lengths[1][batch].max()) for batch in update]
    total = sum(cost * len(batch) for cost, batch in zip(costs, update, strict=True))
    part: list[Share] = []
    done = 0
    for cost, batch in zip(costs, update, strict=True):
        # A pair goes to the process whose interval of cumulative cells contains its middle.
        middles = done + cost * np.arange(len(batch), dtype=np.int64) + cost // 2
        owners = middles * world // total
        if len(mine := np.flatnonzero(owners == rank)):
            part.append(Share(batch[mine], int(mine[0]), batch))
        done += cost * len(batch)
    return part


def shard_each(update: Sequence[Indices], lengths: tuple[Lengths, Lengths], rank: int, world: int) -> list[Share]:
    """The share of every batch of an update that process `rank` of `world` computes: one share per batch for each.

    A process to which no pair of a batch falls computes the batch's first pair, which does not count.
    """
    shares = [shard([batch], lengths, rank, world) for batch in update]
    return [
        share[0] if share else Share(batch[:1], 0, batch, counts=False)
        for batch, share in zip(update, shares, strict=True)
    ]


def load_share(text: SegmentedText, share: Share) -> Batch:
    """The pairs of a share, padded as in their whole batch, so that they are computed identically.

    Pairs that do not count have no target token to predict.
    """
    if not share.counts:
        return load(text, share.pairs).silenced()
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
                f"batches.{name}={limit} is too small for {len(beyond)} of {len(source)} single sentence pairs, "
                f"the first being {origin(first)} ({source[first]} source and {target[first]} target "
                f"tokens). Set batches.{name} to {most} or more, or leave out long pairs with data.filters.max_length."
            )


def _deal(batches: Sequence[Indices], target_lengths: Lengths, update_tokens: int) -> list[UpdateBatches]:
    updates: list[UpdateBatches] = []
    room = -1
    begun: set[int] = set()
    for batch in batches:
        tokens = int(target_lengths[batch].sum())
        if tokens > room:
            updates.append([])
            room = update_tokens
            begun = set()
        # Dropout masks of the batches of an update depend on their first pairs, which should differ: a repeated pair
        # may be in several of them, and a batch without any other pair shares its mask with one of the same pairs.
        place = next((place for place, pair in enumerate(batch.tolist()) if pair not in begun), 0)
        updates[-1].append(np.roll(batch, -place) if place else batch)
        begun.add(int(batch[place]))
        room -= tokens
    return updates
