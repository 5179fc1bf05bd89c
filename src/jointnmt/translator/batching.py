"""Lines into windows, sentences into batches, and results back into the order of the lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

from jointnmt.data.batches import BatchConfig, plan_epoch

Item = TypeVar("Item")
Result = TypeVar("Result")

FIRST_WINDOW = 16
OVERHEAD_CELLS = 10_000
"""Of a batch, as `BatchConfig` has it: more than in training, for each step of a search costs something by itself."""


def windows(items: Iterable[Item], largest: int) -> Iterator[list[Item]]:
    """The items in lists, short ones first, so that the first results come soon; then up to `largest` items."""
    iterator = iter(items)
    size = min(FIRST_WINDOW, largest)
    while window := list(islice(iterator, size)):
        yield window
        size = min(2 * size, largest)


def plan_batches(
    source_lengths: Sequence[int], target_lengths: Sequence[int], max_cells: int, max_tokens: int
) -> list[list[int]]:
    """Batches of sentences of similar lengths, by their numbers; the batch with the first sentence comes first.

    A batch has at most `max_cells` cells and `max_tokens` tokens on either side, padding included, or as many as the
    largest sentence has all by itself.
    """
    if not source_lengths:
        return []
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    tokens = max(max_tokens, int(max(source.max(), target.max())))
    cells = max(max_cells, int((source * target).max()))
    config = BatchConfig(max_tokens=tokens, max_cells=cells, update_tokens=tokens, overhead_cells=OVERHEAD_CELLS)
    updates = plan_epoch(source, target, config, seed=0, epoch=0)
    return sorted((batch.tolist() for update in updates for batch in update), key=min)


def in_order(batches: Iterable[list[int]], compute: Callable[[list[int]], list[Result]]) -> Iterator[Result]:
    """The results of the sentences 0, 1, ..., each as soon as it and all before it are there."""
    done: dict[int, Result] = {}
    following = 0
    for batch in batches:
        done.update(zip(batch, compute(batch), strict=True))
        while following in done:
            yield done.pop(following)
            following += 1
