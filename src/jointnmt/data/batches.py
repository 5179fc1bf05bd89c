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
from jointnmt.data.store import SegmentedText
from jointnmt.errors import ConfigurationError

Lengths = npt.NDArray[np.integer[Any]]
Indices = npt.NDArray[np.integer[Any]]
UpdateBatches = list[Indices]

POOL_PAIRS = 2**20
"""Pairs sorted by length together: more give less padding, and take more memory."""


class BatchConfig(Config):
    """Sizes of batches and updates. Tokens and cells count end marks and padding."""

    max_tokens: int = Field(4096, ge=1, le=10**9, description="most tokens of a batch on either side, padding included")
    max_cells: int | None = Field(
        None,
        ge=1,
        le=10**12,
        description="most cells of a batch: sentences · longest source · longest target; null: no limit",
    )
    update_tokens: int = Field(
        4096,
        ge=1,
        le=10**9,
        description="target tokens of an update, which accumulates batches up to this; no batch is larger",
    )
    overhead_cells: int = Field(
        500,
        ge=0,
        le=10**9,
        description="fixed cost of a batch, in cells: larger values mean fewer batches and more padding",
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
    (`BatchConfig.overhead_cells`). The batches of a pool are shuffled and dealt to updates: each update takes the next
    batches until `update_tokens` is reached. A pure function of its arguments, independent of the number of processes.
    Takes 4 bytes per pair and about 100 per batch, and a second for some 2 million pairs.

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
    """The share of an update that process `rank` of `world` computes; the shares together are the update.

    Pairs are assigned in order, by cumulated padded cells, so that all processes have the same work to within a pair,
    and at most `world - 1` batches are split. With too few pairs, a process may get an empty list.
    """
    costs = [int(lengths[0][batch].max()) * int(lengths[1][batch].max()) for batch in update]
    total = sum(cost * len(batch) for cost, batch in zip(costs, update, strict=True))
    part: UpdateBatches = []
    done = 0
    for cost, batch in zip(costs, update, strict=True):
        # A pair goes to the process in whose interval of cumulated cells its middle lies.
        middles = done + cost * np.arange(len(batch), dtype=np.int64) + cost // 2
        owners = middles * world // total
        if len(mine := batch[owners == rank]):
            part.append(mine)
        done += cost * len(batch)
    return part


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


def _by_length(source: Lengths, target: Lengths) -> npt.NDArray[np.intp]:
    """A stable order in which neighbours have nearly the same lengths on both sides.

    By the longer side, then by the difference of the sides, alternately rising and falling, so that there is no jump
    between groups.
    """
    longer = np.maximum(source, target)
    difference = source - target
    return np.lexsort((np.where(longer % 2, -difference, difference), longer))


def _cut(source: Lengths, target: Lengths, config: BatchConfig, generator: np.random.Generator) -> list[int]:
    """The indices at which new batches begin in sorted pairs.

    Within the limits, each batch takes the number of pairs with the lowest cost per real cell; the cost of a batch is
    its padded cells and an overhead. The overhead is drawn at random for each batch, so that batches do not end at the
    same lengths, with the same sentences, in every epoch.
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
        begin += len(price) - int(price[::-1].argmin())  # of equal prices the largest batch
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
