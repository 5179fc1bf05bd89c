"""Reduction of the grid along the source axis: one vector for each target position (Li et al. 2020, Eq. 6)."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jointnmt.models.layers.linear import Linear
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.ops import apply_linear, attention_pool, normed

ReductionKind = Literal["attention", "max", "mean"]


class Reduction(nn.Module):
    """Layer norm, one vector out of S, layer norm.

    `attention` weights every feature of every source position by its own softmax over S, with scores `W x`, W `[E, E]`
    and no bias (Eq. 6). `max` and `mean` are simpler alternatives, without parameters but the norms'.
    """

    def __init__(self, embed_dim: int, kind: ReductionKind) -> None:
        super().__init__()
        self.kind = kind
        self.input_norm = LayerNorm(embed_dim)
        self.output_norm = LayerNorm(embed_dim)
        if kind == "attention":
            self.scores = Linear(embed_dim, embed_dim, bias=False)
            nn.init.normal_(self.scores.weight, 0, embed_dim**-0.5)

    def forward(
        self,
        grid: Float[Tensor, "B S T E"],
        source_mask: Bool[Tensor, "B S"],
        attn_weights: list[Tensor] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T E"]:
        """Reduce the grid over the real source positions, where `source_mask` is True.

        Args:
            attn_weights: if given, the weights of source positions for each target position, `[B, T, S]`, averaged over
                features and with sum 1, are appended.
            lengths: number of real source positions of each sentence; None: they are counted.
        """
        _, y = normed(grid, self.input_norm)
        x = y.value
        weights: list[Tensor] | None = None if attn_weights is None else []
        if self.kind == "max":
            padding = ~source_mask[:, :, None, None]
            reduced = x.masked_fill(padding, -torch.inf).amax(dim=1)
            if weights is not None:
                weights.append((x == reduced[:, None]) & ~padding)
        else:
            scores = apply_linear(self.scores, y) if self.kind == "attention" else torch.zeros_like(x)
            reduced = attention_pool(x, scores, source_mask, weights, lengths)
        if attn_weights is not None and weights is not None:
            mean = weights[0].detach().float().mean(dim=-1).transpose(1, 2)  # [B, S, T, E] -> [B, T, S]
            attn_weights.append(mean / mean.sum(dim=-1, keepdim=True))
        return self.output_norm(reduced)
