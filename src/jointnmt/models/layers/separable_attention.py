"""Separable attention: along one axis of the grid at a time (Li et al. 2020, Eq. 5)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.models.layers.attention import attend, prefers_batched_products, projection, split_heads
from jointnmt.models.layers.batched_attention import batched_attention
from jointnmt.models.layers.cache import KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout


class TargetAttention(nn.Module):
    """Attention along T, separately for every source position; causal by the bias it is given."""

    def __init__(self, embed_dim: int, num_heads: int, weight_dropout: SharedDropout) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = projection(embed_dim, 3 * embed_dim)
        self.output = projection(embed_dim, embed_dim)
        self.dropout = weight_dropout

    def forward(
        self,
        grid: Float[Tensor, "B S T E"],
        bias: Float[Tensor, ...],
        cache: KeyValueCache | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S T E"]:
        """Attend along T where `bias` (broadcast to `[B, S, H, T, T]`) allows.

        With a `cache`, the T axis holds the newest column of the rows of each of B sentences, which attend to the slots
        of the cache.
        """
        qkv = self.qkv(grid)
        if cache is None and prefers_batched_products(qkv, self.dropout, maps):
            return self.output(batched_attention(qkv, self.num_heads, bias, axis=2))
        heads = split_heads(qkv, 3 * self.num_heads).transpose(2, 3)  # -> [B, S, 3H, T, D]
        query, key, value = heads.chunk(3, dim=2)
        if cache is not None:
            key, value = cache.append(key, value)
        attended = attend(query, key, value, bias, self.dropout, maps)
        return self.output(attended.transpose(2, 3).flatten(3))


class SourceAttention(nn.Module):
    """Attention along S, separately for every target position."""

    def __init__(self, embed_dim: int, num_heads: int, weight_dropout: SharedDropout) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = projection(embed_dim, 3 * embed_dim)
        self.output = projection(embed_dim, embed_dim)
        self.dropout = weight_dropout

    def forward(
        self, grid: Float[Tensor, "B S T E"], bias: Float[Tensor, ...], maps: list[Tensor] | None = None
    ) -> Float[Tensor, "B S T E"]:
        """Attend along S where `bias` (broadcast to `[B, T, H, S, S]`) allows."""
        qkv = self.qkv(grid)
        if prefers_batched_products(qkv, self.dropout, maps):
            return self.output(batched_attention(qkv, self.num_heads, bias, axis=1))
        heads = split_heads(qkv, 3 * self.num_heads).permute(0, 2, 3, 1, 4)  # -> [B, T, 3H, S, D]
        query, key, value = heads.chunk(3, dim=2)
        attended = attend(query, key, value, bias, self.dropout, maps)
        return self.output(attended.permute(0, 3, 1, 2, 4).flatten(3))
