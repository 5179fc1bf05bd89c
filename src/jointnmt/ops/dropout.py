"""Dropout masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

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
        """A new mask for a tensor of this shape, broadcast to it; None: nothing is dropped."""
        ...

    def add(self, x: Tensor, update: Tensor) -> Tensor:
        """`x + dropout(update)`."""
        ...


def dropout_mask(shape: Sequence[int], rate: float, like: Tensor) -> Float[Tensor, ...]:
    """A new mask of dropout in the type of `like`: 0 at this rate, else `1 / (1 - rate)`."""
    if not uses_kernels(like):
        return like.new_empty(shape).bernoulli_(1 - rate).div_(1 - rate)
    mask = like.new_empty(shape)
    seed = int(torch.randint(2**63 - 1, (), device="cpu").item())
    call("fill_dropout_mask", mask, mask.numel(), float(rate), seed, mask)
    return mask
