"""Reduction of the grid along the source axis: one vector for each target position (Li et al. 2020, Eq. 6)."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jointnmt.models.layers.norm import LayerNorm, as_it_is
from jointnmt.models.layers.residual import Stream
from jointnmt.ops.native import operations as native

ReductionKind = Literal["attention", "max", "mean"]


class Reduction(nn.Module):
    """Layer norm, one vector out of S, layer norm.

    `attention` weighs every feature of every source position by a softmax over S of its own: scores `W x`, with W
    `[E, E]` and no bias (Eq. 6). `max` and `mean` are the plain alternatives, and have no parameters but the norms.
    """

    def __init__(self, embed_dim: int, kind: ReductionKind) -> None:
        super().__init__()
        self.kind = kind
        self.input_norm = LayerNorm(embed_dim)
        self.output_norm = LayerNorm(embed_dim)
        if kind == "attention":
            self.scores = nn.Linear(embed_dim, embed_dim, bias=False)
            nn.init.normal_(self.scores.weight, 0, embed_dim**-0.5)

    def forward(
        self, grid: Stream, source_mask: Bool[Tensor, "B S"], wants_alignment: bool = False
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B T S"] | None]:
        """Reduce the grid `[B, S, T, E]` over the real source positions.

        Returns:
            The reduced states; and, if asked for, each source position's weight, averaged over features.
        """
        x = grid.normed(self.input_norm)
        padding = ~source_mask[:, :, None, None]
        if self.kind == "max":
            reduced = x.masked_fill(padding, -torch.inf).amax(dim=1)
            weights = (x == reduced[:, None]) & ~padding if wants_alignment else None
        elif self.kind == "attention" and not wants_alignment and native.usable(x, x.shape[-1]):
            reduced, weights = native.reduction(x, native.project(x, self.scores), source_mask.sum(dim=1)), None
        else:
            scores = self.scores(x) if self.kind == "attention" else torch.zeros_like(x)
            with as_it_is(x):
                weights = scores.masked_fill(padding, -torch.inf).softmax(dim=1)
                reduced = (weights * x).sum(dim=1)
        alignment = None
        if wants_alignment and weights is not None:
            mean = weights.detach().float().mean(dim=-1).transpose(1, 2)  # [B, S, T, E] -> [B, T, S]
            alignment = mean / mean.sum(dim=-1, keepdim=True)
        return Stream(reduced).normed(self.output_norm), alignment
