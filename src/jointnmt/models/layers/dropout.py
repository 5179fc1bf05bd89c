"""Dropout whose noise may be shared along axes: Dropout1d and Dropout2d of the grid."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class SharedDropout(nn.Module):
    """Dropout with one draw of noise for all places along the given axes.

    Along the axes of a grid every token's features are repeated, so a feature dropped in one cell could be read from
    the next; noise shared along them removes it from all (Li et al. 2020, "Dropout1d" and "Dropout2d"). No shared
    axis is ordinary dropout.
    """

    def __init__(self, rate: float, shared_axes: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.rate = rate
        self.shared_axes = shared_axes

    def forward(self, x: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """`x` with features dropped while training, unchanged otherwise."""
        if not self.training or self.rate == 0:
            return x
        if not self.shared_axes:
            return functional.dropout(x, self.rate)
        return x * self._noise(x)

    def add(self, x: Float[Tensor, ...], update: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """`x + dropout(update)`, in one pass over the grid."""
        if not self.training or self.rate == 0:
            return x + update
        if not self.shared_axes:
            return x + functional.dropout(update, self.rate)
        return torch.addcmul(x, update, self._noise(update).to(x.dtype))

    def _noise(self, x: Tensor) -> Tensor:
        shape = list(x.shape)
        for axis in self.shared_axes:
            shape[axis] = 1
        keep = 1 - self.rate
        return x.new_empty(shape).bernoulli_(keep).div_(keep)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, shared_axes={self.shared_axes}"
