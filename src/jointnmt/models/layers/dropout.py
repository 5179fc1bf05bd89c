"""Dropout whose noise may be shared along axes: Dropout1d and Dropout2d of the grid."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.ops.native import operations as native


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
        noise = self.noise(x.shape, x) if self.shared_axes else None
        return functional.dropout(x, self.rate) if noise is None else x * noise

    def add(self, x: Float[Tensor, ...], update: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """`x + dropout(update)`, in one pass over the grid."""
        if not self.training or self.rate == 0:
            return x + update
        noise = self.noise(update.shape, update) if self.shared_axes else None
        if noise is None:
            return x + functional.dropout(update, self.rate)
        return torch.addcmul(x, update, noise.to(x.dtype))

    def noise(self, shape: Sequence[int], like: Tensor) -> Float[Tensor, ...] | None:
        """A new draw of factors for a tensor of this `shape`, 1 long along shared axes; None: nothing is dropped."""
        if not self.training or self.rate == 0:
            return None
        shape = [1 if axis in self.shared_axes else length for axis, length in enumerate(shape)]
        if native.usable(like):
            return native.dropout_noise(shape, self.rate, like)
        keep = 1 - self.rate
        return like.new_empty(shape).bernoulli_(keep).div_(keep)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, shared_axes={self.shared_axes}"
