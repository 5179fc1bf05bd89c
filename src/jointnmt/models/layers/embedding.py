"""Token embeddings with sinusoidal positional encodings, and the projection to the vocabulary."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.ops import Normed, fusable, linear, to_autocast_dtype
from jointnmt.text.special import pad_id


def sinusoids(length: int, embed_dim: int) -> Float[Tensor, "L E"]:
    """Positional encodings of positions 0 to `length - 1`: all sines, then all cosines.

    Frequencies fall geometrically from 1 to 1/10,000 (the layout of tensor2tensor; Vaswani et al. 2017, section 3.5,
    interleave instead). Position 0 is the first token; the authors of the Reformer start at 2, a constant offset.
    """
    half = embed_dim // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10_000) / max(half - 1, 1)))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return functional.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, embed_dim - 2 * half)).float()


def token_table(vocabulary: int, embed_dim: int) -> nn.Parameter:
    """An embedding table initialised from N(0, 1/E), with zeros in the row of `pad_id`."""
    table = torch.empty(vocabulary, embed_dim).normal_(0, embed_dim**-0.5)
    table[pad_id] = 0
    return nn.Parameter(table)


class TokenEmbedding(nn.Module):
    """`dropout(sqrt(E) * embedding + position)` of every token (one side of Li et al. 2020, Eq. 4).

    The paper's text scales the positions too; this follows the authors' code, which does not. Padding is on the right,
    so the positions of real tokens count from 0 without gaps.
    """

    positions: Tensor

    def __init__(self, vocabulary: int, embed_dim: int, dropout: float) -> None:
        super().__init__()
        self.weight = token_table(vocabulary, embed_dim)
        self.scale = math.sqrt(embed_dim)
        self.dropout = SharedDropout(dropout)
        self.register_buffer("positions", sinusoids(256, embed_dim), persistent=False)

    def forward(self, ids: Int[Tensor, "N L"], start: int = 0) -> Float[Tensor, "N L E"]:
        """Embed `ids`; the first column is at position `start`."""
        end, positions = start + ids.shape[1], self.positions  # another thread may replace them
        if end > len(positions):
            grown = sinusoids(max(end, 2 * len(positions)), self.weight.shape[1])
            self.positions = positions = grown.to(positions.device, positions.dtype)
        embedded = functional.embedding(ids, self.weight, padding_idx=pad_id)
        x = embedded * self.scale + positions[start:end]
        return to_autocast_dtype(self.dropout(x))


class VocabularyProjection(nn.Module):
    """Projection of hidden states to logits over the target vocabulary, without bias."""

    def __init__(self, table: nn.Parameter) -> None:
        super().__init__()
        self.weight = table

    @fusable
    def forward(self, hidden: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places V"]:
        return linear(hidden, self.weight)
