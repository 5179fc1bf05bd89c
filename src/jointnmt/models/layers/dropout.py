"""Dropout with a mask that may be shared along axes: Dropout1d and Dropout2d of the grid."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.ops import dropout, dropout_mask


class SharedDropout(nn.Module):
    """Dropout with a mask shared along the given axes; without any, ordinary dropout.

    Along the axes of a grid every token's features are repeated, so a feature dropped in one cell could be read from
    the next; a mask shared along them removes it from all (Li et al. 2020, "Dropout1d" and "Dropout2d").
    """

    def __init__(self, rate: float, shared_axes: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.rate = rate
        self.shared_axes = shared_axes

    @property
    def active(self) -> bool:
        """Whether it drops anything: in training, at a rate above 0."""
        return self.training and self.rate > 0

    def forward(self, x: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """`x` with features dropped while training, unchanged otherwise."""
        if not self.active:
            return x
        mask = self.mask(x.shape, x) if self.shared_axes else None
        return dropout(x, self.rate) if mask is None else x * mask

    def add(self, x: Float[Tensor, ...], update: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """`x + dropout(update)`, with a shared mask in one pass over the grid."""
        mask = self.mask(update.shape, update) if self.shared_axes else None
        return x + self(update) if mask is None else torch.addcmul(x, update, mask.to(x.dtype))

    def mask(self, shape: Sequence[int], like: Tensor) -> Float[Tensor, ...] | None:
        """A new mask for a tensor of this `shape`, of size 1 along shared axes; None if nothing is dropped."""
        if not self.active:
            return None
        shape = [1 if axis in self.shared_axes else length for axis, length in enumerate(shape)]
        return dropout_mask(shape, self.rate, like)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, shared_axes={self.shared_axes}"
