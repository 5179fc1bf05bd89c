"""Masks of attention: which keys each query may attend to."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jointnmt.ops.native.calls import OwnSlotsArgument


class OwnSlots:
    """The slots of a cache that each of N rows may attend to, which change from position to position.

    Kernels find them through a structure at a fixed address: a recorded call reads those of its own position.
    """

    def __init__(self) -> None:
        self.memory = torch.zeros(ctypes.sizeof(OwnSlotsArgument), dtype=torch.uint8, device="cpu")
        """Memory of `structure`."""
        self.structure = OwnSlotsArgument.from_address(self.memory.data_ptr())
        self._slots = torch.empty(0, dtype=torch.long, device="cpu")

    def update(self, slots: Int[Tensor, "N t"], newest: int) -> None:
        """Move to another position; `newest` is the first of its slots."""
        self.structure.newest, self.structure.seen = newest, slots.shape[1]
        if slots.device.type == "cpu":  # only CPU kernels read them; on a GPU this would synchronise
            self._slots = slots.long().contiguous()
            self.structure.slots = self._slots.data_ptr()


@dataclass(frozen=True)
class AttentionMask:
    """Mask of keys that each query may attend to: an additive bias, and a description that kernels use instead.

    `AttentionMask(lambda: bias)` is any bias in the dtype of the queries, such as one of relative positions; PyTorch's
    operations compute attention with it.
    """

    make_bias: Callable[[], Float[Tensor, ...]]
    """Creates the bias when it is first used; kernels do not need it."""
    lengths: Int[Tensor, " B"] | None = None
    """Number of real keys of each sentence, if the bias masks exactly the padding on the right."""
    is_causal: bool = False
    """Whether the bias is exactly the causal one: a query attends to itself and to earlier positions."""
    own: OwnSlots | None = None
    """Cache slots that each row may attend to, if the bias masks exactly the others."""
    _made: list[Tensor] = field(default_factory=list)
    _merged: list[tuple[tuple[int, ...], Tensor]] = field(default_factory=list)

    @property
    def bias(self) -> Float[Tensor, ...]:
        """0 where a query may attend, minus infinity elsewhere; broadcast to `[*batch, Q, L]`."""
        if not self._made:  # no cached_property: its lock, in Python 3.11, would split what torch.compile compiles
            self._made.append(self.make_bias())
        return self._made[0]

    @classmethod
    def causal(cls, length: int, like: Tensor) -> Self:
        """Causal mask: a position may attend to itself and to earlier ones."""
        kind, device = like.dtype, like.device
        return cls(lambda: torch.full((length, length), -torch.inf, dtype=kind, device=device).triu_(1), is_causal=True)

    @classmethod
    def padding(
        cls, mask: Bool[Tensor, "B S"], like: Tensor, axes: int, lengths: Int[Tensor, " B"] | None = None
    ) -> Self:
        """Padding mask: every query may attend to the real tokens, where `mask` is True; padding is on the right.

        The bias has `axes` broadcast axes between B and S. `lengths`, the numbers of real tokens, are counted if they
        are not given. Over a sentence without tokens attention is undefined: kernels give zeros, the plain form NaN.
        """
        lengths = mask.sum(dim=1, dtype=torch.int32) if lengths is None else lengths
        return cls(lambda: _bias_of(mask, like).view(len(mask), *[1] * axes, mask.shape[1]), lengths=lengths)

    @classmethod
    def cached(
        cls, visible: Callable[[], Bool[Tensor, "G R L"]], own: OwnSlots | None, like: Tensor, axes: int
    ) -> Self:
        """Mask over a cache: each row may attend to its own slots, given by `visible` and, equivalently, by `own`.

        The bias has `axes` broadcast axes between G and R.
        """

        def bias() -> Tensor:
            seen = visible()
            return _bias_of(seen, like).view(len(seen), *[1] * axes, *seen.shape[1:])

        return cls(bias, own=own)

    def merged(self, leading: tuple[int, ...]) -> Float[Tensor, ...]:
        """The bias, broadcast to the `leading` axes of attention, which are flattened into one; cached."""
        if not self._merged or self._merged[0][0] != leading:  # no dict: torch.compile would fix the sizes by hashing
            self._merged[:] = [(leading, self.bias.expand(*leading, *self.bias.shape[-3:]).flatten(0, -4))]
        return self._merged[0][1]


def _bias_of(mask: Bool[Tensor, ...], like: Tensor) -> Float[Tensor, ...]:
    # Not in place, which vmap refuses.
    return torch.zeros((), dtype=like.dtype, device=like.device).masked_fill(~mask, -torch.inf)
