"""Compaction of a batch when sentences leave, are reordered or repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class BatchCompaction:
    """The sentences of a batch to keep, and the copies needed: planned once, applied to every tensor."""

    sentences: Sequence[int]
    """Old indices of the kept sentences."""
    filled: Sequence[tuple[int, int]] | None
    """Pairs of indices (to, from): sentences from the end of the batch that are copied to the places of dropped ones.
    None: all sentences are copied."""

    @classmethod
    def plan(cls, sentences: Sequence[int], count: int) -> Self:
        """Plan to keep `sentences` of `count`, in this order, perhaps repeatedly."""
        filled = [(to, place) for to, place in enumerate(sentences) if to != place]
        in_place = len(sentences) <= count and all(place >= len(sentences) for _, place in filled)
        return cls(sentences, filled if in_place else None)

    def apply(self, stored: Tensor, used: int | None = None) -> Tensor:
        """`stored` with the kept sentences along its first axis; in place if possible.

        Args:
            stored: the tensor, which must not be used afterwards.
            used: number of slots in use, along the second-to-last axis; None: all.
        """
        kept, content = len(self.sentences), stored if used is None else stored[..., :used, :]
        if self.filled is not None:
            for to, place in self.filled:  # slices: indexing copies non-contiguous tensors element by element
                content[to].copy_(content[place])
            return stored[:kept]
        picked = content.index_select(0, torch.tensor(self.sentences, dtype=torch.long, device=content.device))
        if used is None:
            return picked
        result = stored.new_empty([kept, *stored.shape[1:]])
        result[..., :used, :] = picked
        return result
