"""A stream of lines in windows, the batches of a window, and results in the order of the lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from jointnmt.data.length_buckets import BatchConfig, plan_batches
from jointnmt.errors import DataError
from jointnmt.ops.out_of_memory import in_parts
from jointnmt.translator.preprocessing import EncodedSentence

Item = TypeVar("Item")
Result = TypeVar("Result")

FIRST_WINDOW = 16
CELLS = {"cpu": 50_000, "cuda": 1_000_000}
"""Most cells of a batch by device type, counting each hypothesis of a beam at the maximum target length."""
TRANSFORMER_CELLS = 200_000
"""Most cells of a batch for a Transformer on a CPU. A position of few rows is bound by reading weights, so larger
batches are faster even if they pad more. A grid gains nothing, and its memory grows with cells, a Transformer's with
tokens."""
MOST_CELLS = 10**9
"""Largest `max_cells` that is accepted."""
OVERHEAD_CELLS = 10_000
"""`BatchConfig.overhead_cells` of decoding: more than in training, since every decoding step has a fixed cost."""


def default_cells(device: str, is_grid: bool) -> int:
    """Most cells of a batch on this type of device, for a model with or without a grid."""
    if device == "cpu" and not is_grid:
        return TRANSFORMER_CELLS
    return CELLS.get(device, CELLS["cpu"])


def windows(items: Iterable[Item], largest: int) -> Iterator[list[Item]]:
    """The items in lists that grow up to `largest`: the first are short, so that the first results come early.

    If reading the items fails, those read before are yielded first, then the error is raised.
    """
    iterator = iter(items)
    size = min(FIRST_WINDOW, largest)
    failed: list[Exception] = []
    while not failed and (window := list(_until_error(islice(iterator, size), failed))):
        yield window
        size = min(2 * size, largest)
    if failed:
        raise failed[0]


def _until_error(items: Iterator[Item], failed: list[Exception]) -> Iterator[Item]:
    try:
        yield from items
    except Exception as error:
        failed.append(error)


def plan_window(
    source_lengths: Sequence[int],
    target_lengths: Sequence[int],
    max_cells: int,
    max_tokens: int,
    overhead_cells: int = OVERHEAD_CELLS,
) -> list[list[int]]:
    """Length-bucketed batches of sentence numbers; the batch with the first sentence comes first.

    `max_cells` and `max_tokens` (on either side) count padding; a single larger sentence is still given a batch.
    """
    config = BatchConfig(max_tokens=max_tokens, max_cells=max(max_cells, 1), overhead_cells=overhead_cells)
    return sorted(plan_batches(source_lengths, target_lengths, config), key=min)


def in_order(batches: Iterable[list[int]], compute: Callable[[list[int]], list[Result]]) -> Iterator[Result]:
    """The results of sentences 0, 1, ..., each as soon as it and all before it are computed."""
    done: dict[int, Result] = {}
    following = 0
    for batch in batches:
        done.update(zip(batch, compute(batch), strict=True))
        while following in done:
            yield done.pop(following)
            following += 1


def computed(
    sentences: Sequence[EncodedSentence],
    batches: Iterable[list[int]],
    compute: Callable[[Sequence[EncodedSentence]], list[Result]],
) -> Iterator[Result]:
    """The results of all sentences, in order; a batch that does not fit in memory is computed in parts.

    Raises:
        DataError: naming the sentence that does not fit by itself.
    """
    return in_order(batches, lambda batch: in_parts([sentences[number] for number in batch], compute, _too_large))


def _too_large(sentence: EncodedSentence) -> DataError:
    return DataError(
        f"{sentence.origin}: this sentence does not fit in memory, even by itself. Split it, use a smaller beam, "
        "or more memory."
    )
