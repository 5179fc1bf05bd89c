"""Length-bucketed batches: which sentence pairs are computed together, in which order, and by which process.

Training takes its batches from `plan_epoch`, everything else (validation, translation, scoring, probes) from
`plan_batches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from jointnmt.config import Config
from jointnmt.data.batch import Batch
from jointnmt.data.store import TokenStore
from jointnmt.errors import ConfigurationError

Lengths = npt.NDArray[np.integer[Any]]
Indices = npt.NDArray[np.integer[Any]]
UpdateBatches = list[Indices]

POOL_PAIRS = 2**20
"""Pairs that are sorted by length together: many, so that padding is small; not all, for the sake of memory."""


class BatchConfig(Config):
    """What is computed at once, and what an update sums up. Tokens and cells count end marks and padding."""

    max_tokens: int = Field(4096, ge=1, description="most tokens of a batch on either side, padding included")
    max_cells: int | None = Field(
        None,
        ge=1,
        description="most cells of a batch: sentences · longest source · longest target; null: no limit",
    )
    update_tokens: int = Field(
        4096, ge=1, description="target tokens of an update, which accumulates batches up to this; no batch is larger"
    )
    overhead_cells: int = Field(
        500, ge=0, description="fixed cost of a batch, in cells: larger values mean fewer batches and more padding"
    )


def plan_epoch(
    source_lengths: Lengths,
    target_lengths: Lengths,
    config: BatchConfig,
    seed: int,
    epoch: int,
    origin: Callable[[int], str] = "pair {}".format,
) -> list[UpdateBatches]:
    """The updates of an epoch, each a list of batches, each an array of pair numbers; every pair occurs once.

    Pairs are shuffled, sorted by length in pools of `POOL_PAIRS`, and cut into batches, large and with little padding
    (`BatchConfig.overhead_cells`). The batches of a pool are shuffled and dealt to updates, of which each takes the
    next ones for as long as `update_tokens` is not exceeded. A pure function of its arguments: no matter how many
    processes there are. The plan takes 4 bytes a pair and about 100 a batch, and is made at some 2 million pairs a
    second.

    Args:
        source_lengths: tokens of each pair's source, end mark counted.
        target_lengths: likewise.
        origin: names a pair in an error message, as `TokenStore.origin` does.

    Raises:
        ConfigurationError: if a pair exceeds a limit all by itself.
    """
    if not len(source_lengths):
        return []
    _require_fit(source_lengths, target_lengths, config, origin)
    generator = np.random.default_rng([seed, epoch])
    order = np.arange(len(source_lengths), dtype=np.int32)
    generator.shuffle(order)
    batches: list[Indices] = []
    for pool in np.array_split(order, math.ceil(len(order) / POOL_PAIRS)):
        source, target = source_lengths[pool], target_lengths[pool]
        by_length = _by_length(source, target)
        pool[:] = pool[by_length]
        bounds = _cut(source[by_length], target[by_length], config, generator)
        cut = np.split(pool, bounds)
        batches += [cut[number] for number in generator.permutation(len(cut))]
    return _deal(batches, target_lengths, config.update_tokens)


def plan_batches(source_lengths: Lengths, target_lengths: Lengths, config: BatchConfig) -> list[list[int]]:
    """Batches of similar lengths that hold every pair once, as lists of pair numbers, outside of training.

    A limit of `config` that a single pair exceeds is raised to that pair's size, so that every pair fits; there are no
    updates, so `update_tokens` is not looked at.
    """
    if not len(source_lengths):
        return []
    longest = int(max(source_lengths.max(), target_lengths.max()))
    limits: dict[str, int] = {"max_tokens": max(config.max_tokens, longest)}
    limits["update_tokens"] = limits["max_tokens"]
    if config.max_cells is not None:
        largest = int((source_lengths.astype(np.int64) * target_lengths).max())
        limits["max_cells"] = max(config.max_cells, largest)
    updates = plan_epoch(source_lengths, target_lengths, config.model_copy(update=limits), seed=0, epoch=0)
    return [batch.tolist() for update in updates for batch in update]


def shard(update: Sequence[Indices], lengths: tuple[Lengths, Lengths], rank: int, world: int) -> UpdateBatches:
    """The part of an update that process `rank` of `world` computes; the parts together are the update.

    The batches are laid end to end, each pair as long as its share of the padded cells, and the line is cut into
    `world` equal pieces: so the work is the same for all, to within a pair, and at most `world - 1` batches are split.
    A process gets an empty list if there are too few pairs.
    """
    costs = [int(lengths[0][batch].max()) * int(lengths[1][batch].max()) for batch in update]
    total = sum(cost * len(batch) for cost, batch in zip(costs, update, strict=True))
    part: UpdateBatches = []
    done = 0
    for cost, batch in zip(costs, update, strict=True):
        # Pair i goes to the process in whose piece of the line its middle lies.
        middles = done + cost * np.arange(len(batch), dtype=np.int64) + cost // 2
        owners = middles * world // total
        if len(mine := batch[owners == rank]):
            part.append(mine)
        done += cost * len(batch)
    return part


def load(store: TokenStore, indices: Sequence[int] | Indices) -> Batch:
    """The pairs with these numbers, as a batch."""
    numbers = [int(index) for index in indices]
    sources, targets = zip(*store.pairs(numbers), strict=True)
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
                f"batches.{name}={limit} is too small for {len(beyond)} of {len(source)} sentence pairs all by "
                f"themselves, the first being {origin(first)} ({source[first]} source and {target[first]} target "
                f"tokens). Set batches.{name} to {most} or more, or leave out long pairs with data.filters.max_length."
            )


def _by_length(source: Lengths, target: Lengths) -> npt.NDArray[np.intp]:
    """An order in which neighbours are of nearly the same size on both sides.

    By the longer side, and where that is equal by the difference of the sides, up and down in turn, so that there is no
    jump from one group to the next. Stable: equal pairs stay in the order given.
    """
    longer = np.maximum(source, target)
    difference = source - target
    return np.lexsort((np.where(longer % 2, -difference, difference), longer))


def _cut(source: Lengths, target: Lengths, config: BatchConfig, generator: np.random.Generator) -> list[int]:
    """Where new batches begin in sorted pairs.

    Each batch takes as many of the next pairs as make a true cell cheapest, of what the limits allow: its cost is its
    padded cells and the overhead of a batch. That is drawn anew for each batch, around its mean, so that batches do not
    end at the same lengths in every epoch, with the same sentences between.
    """
    bounds: list[int] = []
    begin = 0
    while True:
        most = config.max_tokens // int(max(source[begin], target[begin]))
        sources, targets = (side[begin : begin + most].astype(np.int64) for side in (source, target))
        widest_source, widest_target = np.maximum.accumulate(sources), np.maximum.accumulate(targets)
        counts = np.arange(1, len(sources) + 1)
        cells = widest_source * widest_target * counts
        fits = np.maximum(widest_source, widest_target) * counts <= config.max_tokens
        fits &= widest_target * counts <= config.update_tokens
        if config.max_cells is not None:
            fits &= cells <= config.max_cells
        overhead = config.overhead_cells * generator.uniform(0, 2)
        price = np.where(fits, (cells + overhead) / np.cumsum(sources * targets), np.inf)
        begin += len(price) - int(price[::-1].argmin())  # of equal ones the largest
        if begin >= len(source):
            return bounds
        bounds.append(begin)


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
