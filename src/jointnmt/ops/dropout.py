"""Dropout and its masks; a part of a batch gets the masks that its rows have in the whole batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jointnmt.ops.backend import uses_kernels
from jointnmt.ops.native.calls import call


class Dropout(Protocol):
    """The dropout layer that fused operations expect."""

    @property
    def active(self) -> bool:
        """Whether it drops anything: in training, at a rate above 0."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """`x` with features dropped while training, unchanged otherwise."""
        ...

    def mask(self, shape: Sequence[int], like: Tensor) -> Tensor | None:
        """A new mask, broadcast to this shape; None if nothing is dropped."""
        ...

    def add(self, x: Tensor, update: Tensor) -> Tensor:
        """`x + dropout(update)`."""
        ...


@dataclass(frozen=True)
class _RowsOfMask:
    """Rows `begin` to `end` of a batch of `whole` rows. The first axis is the rows, perhaps flattened with others."""

    begin: int
    end: int
    whole: int

    def of_whole(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape for the whole batch of a tensor that has this shape for these rows."""
        return (shape[0] // (self.end - self.begin) * self.whole, *shape[1:])

    def take(self, mask: Tensor) -> Tensor:
        """The part of the whole batch's mask that belongs to these rows."""
        places = mask.shape[0] // self.whole
        return mask[self.begin * places : self.end * places]

    def numbers_before(self, shape: Sequence[int]) -> int:
        """Number of elements before these rows in the whole batch's mask."""
        return prod(shape) // (self.end - self.begin) * self.begin


_rows: _RowsOfMask | None = None
"""Rows set by `masks_of_rows`; not thread-local, as a GPU's backward pass recomputes layers in other threads."""


@contextmanager
def masks_of_rows(begin: int, end: int, whole: int) -> Iterator[None]:
    """A context in which dropout masks are those of rows `begin` to `end` of a batch of `whole` rows.

    Inputs must have these rows alone, padded as in the whole batch, and torch's generator the same state. Models that
    use `dropout` and `dropout_mask` then give the same results however the batch is divided.
    """
    global _rows
    before, _rows = _rows, None if end - begin == whole else _RowsOfMask(begin, end, whole)
    try:
        yield
    finally:
        _rows = before


def dropout(x: Float[Tensor, "*places E"], rate: float) -> Float[Tensor, "*places E"]:
    """`x` with elements zeroed at this rate, all others divided by `1 - rate`."""
    if _rows is None:
        return functional.dropout(x, rate)
    return x * _rows.take(functional.dropout(x.new_ones(_rows.of_whole(x.shape)), rate))


def dropout_mask(shape: Sequence[int], rate: float, like: Tensor) -> Float[Tensor, ...]:
    """A new dropout mask in the dtype of `like`: 0 at this rate, else `1 / (1 - rate)`; rows are its first axis."""
    rows = _rows
    if not uses_kernels(like):
        mask = like.new_empty(shape if rows is None else rows.of_whole(shape)).bernoulli_(1 - rate).div_(1 - rate)
        return mask if rows is None else rows.take(mask)
    seed = int(torch.randint(2**63 - 1, (), device="cpu").item())
    if rows is None:
        return _filled(shape, rate, seed, like)
    before = rows.numbers_before(shape)
    if before % 2:  # the kernel draws two numbers at once
        return rows.take(_filled(rows.of_whole(shape), rate, seed, like))
    return _filled(shape, rate, (seed + before // 2 * _STRIDE) % 2**64, like)


_STRIDE = 0x9E3779B97F4A7C15
"""Added to the seed by the kernel for each pair of elements; a multiple added beforehand starts later in the mask."""


def _filled(shape: Sequence[int], rate: float, seed: int, like: Tensor) -> Tensor:
    mask = like.new_empty(shape)
    call("fill_dropout_mask", mask, mask.numel(), float(rate), seed, mask)
    return mask
