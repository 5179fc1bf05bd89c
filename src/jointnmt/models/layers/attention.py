"""Multi-head attention layers over sequences and grids, with their weights; computed by `jointnmt.ops.attention`."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.models.interface import NO_RECORD, AttentionRecord
from jointnmt.models.layers.cache import KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.linear import Linear, projection
from jointnmt.models.layers.shortcut import Shortcut
from jointnmt.ops import (
    AttentionMask,
    Biased,
    Normed,
    apply_linear,
    axial_attention,
    cached_attention,
    linear_update,
    takes_normed,
)

Lexical = Sequence[Tensor]
"""The summands of a projected lexical input (`Shortcut.project`), each broadcast to the layer's input."""


def key_value_projection(embed_dim: int, kept: int, bias: bool, shortcut: Shortcut | None) -> Linear:
    """A projection to `kept` features (queries), and to keys and values, or to the hidden input of the `shortcut`.

    `kept` is E for self-attention and 0 for cross-attention, which has a separate projection of queries.
    """
    if shortcut is None or not shortcut.fusion:
        return projection(embed_dim, kept + 2 * embed_dim, bias, 3 * embed_dim)
    layer = projection(embed_dim, kept + shortcut.hidden_size, bias, 3 * embed_dim)
    nn.init.uniform_(layer.weight[kept:], -shortcut.bound, shortcut.bound)
    return layer


class SelfAttention(nn.Module):
    """Multi-head attention along one axis, independently for every index of the others.

    On a sequence `[B, L, E]` it is the self-attention of Vaswani et al. 2017. On the grid `[B, S, T, E]` it is the
    separable attention of Li et al. 2020, Eq. 5: source attention along axis 1, target attention along axis 2.

    Args:
        embed_dim: E, a multiple of `num_heads`.
        num_heads: H.
        weight_dropout: dropout of attention weights.
        axis: axis to attend along.
        bias: whether the projections have biases.
        shortcut: if given, keys and values are mixed with a lexical input.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        weight_dropout: SharedDropout,
        axis: int = 1,
        bias: bool = True,
        shortcut: Shortcut | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.axis = axis
        self.qkv = key_value_projection(embed_dim, embed_dim, bias, shortcut)
        self.shortcut = shortcut
        self.output = projection(embed_dim, embed_dim, bias)
        self.dropout = weight_dropout

    def forward(
        self,
        x: Float[Tensor, "B *places E"] | Normed,
        mask: AttentionMask,
        cache: KeyValueCache | None = None,
        lexical: Lexical = (),
        record: AttentionRecord = NO_RECORD,
        key_value_input: Float[Tensor, "B *places E"] | None = None,
    ) -> Biased:
        """Attend along the axis.

        Args:
            x: input of the projections to queries, keys and values.
            mask: broadcast to `[B, H, L, L]` for a sequence, `[B, T, H, S, S]` or `[B, S, H, T, T]` for a grid.
            cache: if given, the axis is the rows of each of B sentences at their newest position, which attend to the
                slots of the cache.
            lexical: the projected lexical input of the shortcut; ignored without one.
            record: lists that weights and gates are appended to.
            key_value_input: input of the projections to keys and values, if it is not `x`.

        Returns:
            The output projection, `[B, *places, E]`; its bias may be left to the residual connection (see `Biased`).
        """
        weights, gates = record
        bias: Tensor | None = None
        projected: Sequence[Tensor]
        own_product = self.shortcut is None and key_value_input is None and cache is None
        if own_product and takes_normed(self.qkv):
            projected, bias = [self.qkv.product(x)], self.qkv.bias  # attention adds it as it reads the product
        else:
            query, key_value = self._split(apply_linear(self.qkv, x))
            if key_value_input is not None:
                key_value = self._split(self.qkv(key_value_input))[1]
            if self.shortcut is not None:
                assert len(lexical) > 0, "a layer with a shortcut needs its lexical input"
                key_value = self.shortcut(key_value, lexical, gates)
            projected = query, key_value
        if cache is None:
            attended = axial_attention(projected, self.num_heads, self.axis, mask, self.dropout, bias, weights)
        else:
            query, key_value = projected
            cache.append(key_value)
            attended = cached_attention(query, cache.stored, self.num_heads, mask, self.dropout, weights)
        return linear_update(attended, self.output)

    def _split(self, projected: Tensor) -> Sequence[Tensor]:
        return projected.split([self.embed_dim, projected.shape[-1] - self.embed_dim], dim=-1)


class CrossAttention(nn.Module):
    """Multi-head attention of target positions over the encoder's output."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        weight_dropout: SharedDropout,
        bias: bool = True,
        shortcut: Shortcut | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = projection(embed_dim, embed_dim, bias, 3 * embed_dim)
        self.key_value = key_value_projection(embed_dim, 0, bias, shortcut)
        self.shortcut = shortcut
        self.output = projection(embed_dim, embed_dim, bias)
        self.dropout = weight_dropout

    def project(
        self,
        memory: Float[Tensor, "B S E"],
        lexical: Lexical = (),
        record: AttentionRecord = NO_RECORD,
    ) -> Float[Tensor, "B S EE"]:
        """Keys, then values, of the encoder's output, computed once for all target positions."""
        key_value: Tensor = self.key_value(memory)
        if self.shortcut is not None:
            assert len(lexical) > 0, "a layer with a shortcut needs its lexical input"
            key_value = self.shortcut(key_value, lexical, record.gates)
        return key_value

    def forward(
        self,
        x: Float[Tensor, "B T E"] | Normed,
        projected: Float[Tensor, "B S EE"],
        mask: AttentionMask,
        record: AttentionRecord = NO_RECORD,
    ) -> Biased:
        """Attend to the `projected` keys and values of the source where `mask` allows it."""
        query = apply_linear(self.query, x)
        attended = cached_attention(query, projected, self.num_heads, mask, self.dropout, record.weights)
        return linear_update(attended, self.output)
