"""Length bucketing: batches of sentence pairs of similar lengths, within limits, with little padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from jointnmt.config import Config

if TYPE_CHECKING:
    import numpy as np

    AnyLengths = Sequence[int] | np.typing.NDArray[np.integer[Any]]


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
        description="target tokens of an update, which accumulates batches up to this number; no batch is larger",
    )
    overhead_cells: int = Field(
        500,
        ge=0,
        le=10**9,
        description="fixed cost of a batch, in cells: larger values mean fewer batches and more padding",
    )


def plan_batches(source_lengths: AnyLengths, target_lengths: AnyLengths, config: BatchConfig) -> list[list[int]]:
    """Batches of similar lengths with every pair once, as lists of pair numbers; not for training.

    A limit of `config` that a single pair exceeds is raised to that pair's size, so that every pair fits.
    `update_tokens` is ignored, as there are no updates.

    Args:
        source_lengths: tokens of each pair's source, end mark included.
        target_lengths: tokens of each pair's target, end mark included.
        config: the limits.
    """
    if not len(source_lengths):
        return []
    source, target = (lengths_of(side) for side in (source_lengths, target_lengths))
    limits: dict[str, int] = {"max_tokens": max(config.max_tokens, int(source.max()), int(target.max()))}
    limits["update_tokens"] = limits["max_tokens"]
    if config.max_cells is not None:
        limits["max_cells"] = max(config.max_cells, int((source * target).max()))
    order = by_length(source, target)
    fitting = config.model_copy(update=limits)
    bounds = cut(source[order], target[order], fitting, lambda: float(config.overhead_cells))
    return [batch.tolist() for batch in order.tensor_split(bounds)]


def lengths_of(lengths: AnyLengths) -> Int[Tensor, " n"]:
    """Lengths given as a list or an array, copied to a tensor."""
    return torch.tensor(lengths, dtype=torch.int64, device="cpu")  # copied, as stores are mapped read-only


def by_length(source: Int[Tensor, " n"], target: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """A stable order in which neighbours have nearly the same lengths on both sides.

    Sorted by the longer side, then by the difference of the sides, alternately increasing and decreasing, so that there
    is no jump between groups.
    """
    longer, difference = source.maximum(target), source - target
    order = torch.where(longer % 2 == 1, -difference, difference).argsort(stable=True)
    return order[longer[order].argsort(stable=True)]


def cut(
    source: Int[Tensor, " n"], target: Int[Tensor, " n"], config: BatchConfig, overhead_cells: Callable[[], float]
) -> list[int]:
    """The indices at which batches begin in sorted pairs, each of which fits by itself.

    Within the limits, each batch takes the number of pairs with the lowest cost per real cell. The cost of a batch is
    its padded cells plus an overhead; `overhead_cells` is called for each batch.
    """
    longest, real_cells = source.maximum(target).tolist(), source * target
    counts = torch.arange(1, min(len(source), config.max_tokens) + 1, device="cpu")
    bounds: list[int] = []
    begin = 0
    while True:
        end = min(begin + config.max_tokens // longest[begin], len(source))
        some = counts[: end - begin]
        widest_source, widest_target = (side[begin:end].cummax(0).values for side in (source, target))
        cells = widest_source * widest_target * some
        fits = widest_source.maximum(widest_target) * some <= config.max_tokens
        fits &= widest_target * some <= config.update_tokens
        if config.max_cells is not None:
            fits &= cells <= config.max_cells
        price = (cells.double() + overhead_cells()) / real_cells[begin:end].cumsum(0)
        begin = end - int(price.masked_fill_(~fits, torch.inf).flip(0).argmin())  # the largest batch of equal cost
        if begin >= len(source):
            return bounds
        bounds.append(begin)
