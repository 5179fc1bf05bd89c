"""Dropout with the masks that the code of a paper's authors drew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional


def apply_masks(patch: pytest.MonkeyPatch, drawn: Iterable[tuple[float, Tensor]]) -> list[tuple[float, Tensor]]:
    """Have dropout, of the models and of the reference, take these rates and masks; returns those that are left.

    Each takes the first mask of its shape, as the order of the two embeddings differs, and has to have its rate.
    """
    masks = list(drawn)

    def next_mask(shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
        place = next(n for n, (_, mask) in enumerate(masks) if mask.shape == torch.Size(shape))
        expected_rate, mask = masks.pop(place)
        assert rate == expected_rate
        return mask.to(like)

    def drop(x: Tensor, rate: float) -> Tensor:
        return x * next_mask(x.shape, rate, x)

    patch.setattr("jointnmt.models.layers.dropout.dropout_mask", next_mask)
    patch.setattr("jointnmt.models.layers.dropout.dropout", drop)
    patch.setattr(functional, "dropout", drop)
    return masks
