"""Multi-head attention over sequences and grids, and the one place that computes attention and its masks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from jointnmt.models.layers.batched_attention import batched_attention
from jointnmt.models.layers.cache import KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.norm import as_it_is
from jointnmt.models.layers.residual import Update, project_update
from jointnmt.models.layers.shortcut import Lexical, Shortcut
from jointnmt.ops.native import operations as native

FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's, which makes a plan for every new shape: sentences come in ever new ones."""


@dataclass(frozen=True)
class Sight:
    """Which keys each query of an attention may look at."""

    bias: Float[Tensor, ...]
    """0 where it may, minus infinity elsewhere; broadcast to `[*batch, Q, L]`."""
    lengths: Int[Tensor, " B"] | None = None
    """The first keys of each sentence, if these are all that the bias lets every query see."""
    causal: bool = False
    """Whether the bias lets every query see itself and what precedes it, and nothing else."""
    slots: Int[Tensor, "N t"] | None = None
    """The slots of a cache that each row sees, if these are all that the bias lets it see."""
    _merged: list[Tensor] = field(default_factory=list)

    @classmethod
    def of_past(cls, length: int, like: Tensor) -> Self:
        """A position's own past, itself included."""
        return cls(torch.full((length, length), -torch.inf, dtype=like.dtype, device=like.device).triu_(1), causal=True)

    @classmethod
    def of_tokens(cls, mask: Bool[Tensor, "B S"], like: Tensor, axes: int) -> Self:
        """All real tokens, where `mask` is True; padding is on the right. `axes` lie between B and S."""
        bias = torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(~mask, -torch.inf)
        return cls(bias.view(len(mask), *[1] * axes, -1), lengths=mask.sum(dim=1))

    def merged(self, leading: tuple[int, ...]) -> Float[Tensor, ...]:
        """The bias, broadcast to the `leading` axes of its attention, with all as one; made once for all layers."""
        if not self._merged:
            self._merged.append(self.bias.expand(*leading, *self.bias.shape[-3:]).flatten(0, -4))
        return self._merged[0]


def attend(
    query: Float[Tensor, "*batch Q D"],
    key: Float[Tensor, "*batch L D"],
    value: Float[Tensor, "*batch L D"],
    sight: Sight,
    dropout: SharedDropout | None = None,
    maps: list[Tensor] | None = None,
) -> Float[Tensor, "*batch Q D"]:
    """Scaled dot-product attention, `softmax(query key^T / sqrt(D) + bias) value`, with the bias of `sight`.

    The scale is that of one head, 1/sqrt(D), as in the authors' code; Li et al. 2020, Eq. 2 prints the model's size.
    On a GPU the library's fused kernels do it, unless weights are asked for or dropped. On a CPU, batched products
    and a softmax are faster at sentence lengths.

    Args:
        dropout: applied to the weights.
        maps: if given, the weights `[*batch, Q, L]` are appended, as they are before dropout.
    """
    drops_weights = dropout is not None and dropout.training and dropout.rate > 0
    if _has_fused_kernels(query.device) and maps is None and not drops_weights:
        return _fused(query, key, value, sight)
    scores = torch.matmul(query / math.sqrt(query.shape[-1]), key.transpose(-2, -1)) + sight.bias
    with as_it_is(scores):
        weights = torch.softmax(scores, dim=-1)
    if maps is not None:
        maps.append(weights.detach())
    if dropout is not None:
        weights = dropout(weights)
    return torch.matmul(weights, value)


def _has_fused_kernels(device: torch.device) -> bool:
    return device.type == "cuda"


def _fused(query: Tensor, key: Tensor, value: Tensor, sight: Sight) -> Tensor:
    """The library's fused kernels, which take four axes: leading ones are merged, as a view where strides allow it."""
    leading = query.shape[:-3]
    bias = None if sight.causal else sight.bias
    if bias is not None and bias.ndim > 3:  # of each place its own, but shared by heads and queries where it is
        bias = sight.merged(leading)
    query, key, value = (tensor.reshape(-1, *tensor.shape[-3:]) for tensor in (query, key, value))
    with sdpa_kernel(FUSED):
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, is_causal=sight.causal)
    return attended.unflatten(0, leading)


def _prefers_batched_products(projected: Tensor, dropout: SharedDropout, maps: list[Tensor] | None) -> bool:
    """Whether `batched_attention` can take a self-attention, and is the fastest without kernels: training on a CPU."""
    drops_weights = dropout.training and dropout.rate > 0
    return projected.device.type == "cpu" and projected.requires_grad and maps is None and not drops_weights


def split_heads(x: Float[Tensor, "*places E"], num_heads: int) -> Float[Tensor, "*places H D"]:
    """Features as heads; a view."""
    return x.unflatten(-1, (num_heads, x.shape[-1] // num_heads))


def projection(inputs: int, outputs: int, bias: bool = True, xavier_outputs: int | None = None) -> nn.Linear:
    """A linear layer with Xavier-uniform weight and zero bias.

    A matrix that holds several projections is drawn as one block, as the authors of the joint representation do:
    queries, keys and values of an attention layer are one `[3E, E]` block, even where they are stored apart; then
    `xavier_outputs` is 3E.
    """
    linear = nn.Linear(inputs, outputs, bias)
    bound = math.sqrt(6 / (inputs + (xavier_outputs or outputs)))
    nn.init.uniform_(linear.weight, -bound, bound)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def key_value_projection(embed_dim: int, kept: int, bias: bool, shortcut: Shortcut | None) -> nn.Linear:
    """Projects to `kept` features (queries), and to keys and values or what a `shortcut` makes them of."""
    if shortcut is None or not shortcut.fusion:
        return projection(embed_dim, kept + 2 * embed_dim, bias, 3 * embed_dim)
    linear = projection(embed_dim, kept + shortcut.hidden_size, bias, 3 * embed_dim)
    nn.init.uniform_(linear.weight[kept:], -shortcut.bound, shortcut.bound)
    return linear


class SelfAttention(nn.Module):
    """Multi-head attention along one axis, separately for every place of the others.

    On a sequence `[B, L, E]` it is that of Vaswani et al. 2017. On the grid `[B, S, T, E]` it is the separable
    attention of Li et al. 2020, Eq. 5: source attention along axis 1, target attention along axis 2.

    Args:
        embed_dim: E, a multiple of `num_heads`.
        num_heads: H.
        weight_dropout: of attention weights.
        axis: to attend along.
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
        self.num_heads = num_heads
        self.axis = axis
        self.qkv = key_value_projection(embed_dim, embed_dim, bias, shortcut)
        self.shortcut = shortcut
        self.output = projection(embed_dim, embed_dim, bias)
        self.dropout = weight_dropout

    def forward(
        self,
        x: Float[Tensor, "B *places E"],
        sight: Sight,
        cache: KeyValueCache | None = None,
        maps: list[Tensor] | None = None,
        lexical: Lexical | None = None,
    ) -> Update:
        """Attend to what is in `sight`.

        Its bias is broadcast to `[B, H, L, L]` for a sequence, `[B, T, H, S, S]` or `[B, S, H, T, T]` for a grid. With
        a `cache`, the axis holds the newest position of the rows of each of B sentences, and they attend to its slots.
        `lexical` is what the shortcut mixes in, if there is one.
        """
        return project_update(self.output, self._attend(x, sight, cache, maps, lexical))

    def of_sum(
        self, source: Float[Tensor, "B S E"], target: Float[Tensor, "B T E"], norm: nn.LayerNorm, sight: Sight
    ) -> Update | None:
        """`forward` of the layer norm of the grid `source + target`, in fewer products; None where there are no kernels
        for it, or with a shortcut.

        With a and b as rows of both sides less their mean, a cell's norm is `weight (a + b) / deviation + bias`: S + T
        rows are projected, and what comes out is added and divided for S T cells. In bfloat16 that is the less exact,
        the more a and b cancel each other out.
        """
        embed_dim, linear = target.shape[-1], self.qkv
        if self.shortcut is not None or not native.usable(target, linear.out_features, embed_dim // self.num_heads):
            return None
        sides = torch.cat([source, target], dim=1)
        centred = sides.float() - sides.float().mean(-1, keepdim=True)
        projected = native.project((centred * norm.weight).to(sides.dtype), linear)
        offset = native.project(norm.bias[None].to(sides.dtype), linear)[0]
        bias = offset if linear.bias is None else offset + linear.bias
        projected = native.projected_sum(centred, projected, source.shape[1])
        return project_update(self.output, native.attention([projected], bias, *self._geometry(projected, sight)))

    def _attend(
        self,
        x: Float[Tensor, "B *places E"],
        sight: Sight,
        cache: KeyValueCache | None,
        maps: list[Tensor] | None,
        lexical: Lexical | None,
    ) -> Float[Tensor, "B *places E"]:
        embed_dim = x.shape[-1]
        simple = cache is None and maps is None
        if simple and (sight.causal or sight.lengths is not None) and native.usable(x, embed_dim // self.num_heads):
            return self._attend_by_kernels(x, sight, lexical)
        projected = self._project(x, lexical)
        if cache is not None:
            query, key_value = projected if len(projected) == 2 else projected[0].split([embed_dim, 2 * embed_dim], -1)
            cache.append(key_value)
            return _attend_to_kept(query, cache.kept, self.num_heads, sight, maps, room=cache.stored)
        if simple and _prefers_batched_products(projected[0], self.dropout, maps):
            return batched_attention(projected, self.num_heads, sight.bias, self.axis)
        # Each [B, *places, nE] -> n of [B, kept axes, H, L, D].
        query, key, value = (
            heads.movedim(self.axis, -2) for part in projected for heads in _by_role(part, embed_dim, self.num_heads)
        )
        attended = attend(query, key, value, sight, self.dropout, maps)  # [B, kept axes, H, L, D]
        return attended.movedim(-2, self.axis).flatten(-2)

    def _attend_by_kernels(
        self, x: Float[Tensor, "B *places E"], sight: Sight, lexical: Lexical | None
    ) -> Float[Tensor, "B *places E"]:
        geometry = self._geometry(x, sight)
        shortcut = self.shortcut
        if shortcut is None:
            return native.attention(self._project(x, None, adds_bias=False), self.qkv.bias, *geometry)
        if lexical is not None and lexical.hidden is None and lexical.gates is None:
            projected = native.project(x, self.qkv, self.qkv.bias)
            gate_bias = shortcut.gate_bias.flatten()
            return native.shortcut_attention(projected, gate_bias, shortcut.fusion, lexical.parts, *geometry)
        return native.attention(self._project(x, lexical), None, *geometry)

    def _geometry(self, x: Float[Tensor, "B *places _"], sight: Sight) -> tuple[Any, ...]:
        """What the kernels are told of heads, axis and sight; and the noise of weights."""
        places = [length for axis, length in enumerate(x.shape[:-1]) if axis != self.axis]
        noise = self.dropout.noise((*places, self.num_heads, *[x.shape[self.axis]] * 2), x)
        return self.num_heads, self.axis, sight.lengths, sight.causal, noise

    def _project(
        self, x: Float[Tensor, "B *places E"], lexical: Lexical | None, adds_bias: bool = True
    ) -> tuple[Tensor, ...]:
        """Queries, keys and values in one tensor, or with a shortcut queries in one, keys and values in another."""
        if self.shortcut is None:
            if native.usable(x, self.qkv.out_features):
                return (native.project(x, self.qkv, self.qkv.bias if adds_bias else None),)
            return (self.qkv(x),)
        assert lexical is not None, "a layer with a shortcut needs its lexical input"
        sizes = [x.shape[-1], self.shortcut.hidden_size]
        of_query, of_hidden = self.qkv.weight.split(sizes)
        query_bias, hidden_bias = (None, None) if self.qkv.bias is None else self.qkv.bias.split(sizes)
        multiply = native.multiply if native.usable(x, *self.qkv.weight.shape) else functional.linear
        hidden = multiply(x if lexical.hidden is None else lexical.hidden, of_hidden, hidden_bias)
        return multiply(x, of_query, query_bias), self.shortcut(hidden, lexical)


def _by_role(projected: Tensor, embed_dim: int, num_heads: int) -> tuple[Tensor, ...]:
    """Queries, keys or values, whichever the tensor holds, with heads: `[*places, H, D]` each."""
    return tuple(split_heads(part, num_heads) for part in projected.split(embed_dim, dim=-1))


def _attend_to_kept(
    query: Float[Tensor, "G *lines R E"],
    key_value: Float[Tensor, "G *lines L EE"],
    num_heads: int,
    sight: Sight,
    maps: list[Tensor] | None,
    dropout: SharedDropout | None = None,
    room: Float[Tensor, "G *lines C EE"] | None = None,
) -> Float[Tensor, "G *lines R E"]:
    """Attention of rows to keys and values that lie side by side; `room` is what `key_value` is the beginning of."""
    simple = maps is None and not torch.is_grad_enabled() and (sight.slots is not None or sight.lengths is not None)
    if simple and native.usable(query, query.shape[-1] // num_heads):
        whole = key_value if room is None else room
        return native.attend_to_slots(query, whole, num_heads, sight.slots, sight.lengths)
    heads = [*_by_role(query, query.shape[-1], num_heads), *_by_role(key_value, query.shape[-1], num_heads)]
    queries, keys, values = (part.movedim(-2, -3) for part in heads)  # each -> [G, *lines, H, R or L, D]
    return attend(queries, keys, values, sight, dropout, maps).movedim(-3, -2).flatten(-2)


class CrossAttention(nn.Module):
    """Multi-head attention of target positions over the encoder's output."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        attention_dropout: float,
        bias: bool = True,
        shortcut: Shortcut | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = projection(embed_dim, embed_dim, bias, 3 * embed_dim)
        self.key_value = key_value_projection(embed_dim, 0, bias, shortcut)
        self.shortcut = shortcut
        self.output = projection(embed_dim, embed_dim, bias)
        self.dropout = SharedDropout(attention_dropout)

    def project(self, memory: Float[Tensor, "B S E"], lexical: Lexical | None = None) -> Float[Tensor, "B S EE"]:
        """Keys, then values, of the encoder's output, the same for every position."""
        key_value: Tensor = self.key_value(memory)
        if self.shortcut is not None:
            assert lexical is not None, "a layer with a shortcut needs its lexical input"
            key_value = self.shortcut(key_value, lexical)
        return key_value

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        projected: Float[Tensor, "B S EE"],
        sight: Sight,
        maps: list[Tensor] | None = None,
    ) -> Update:
        """Attend to those `projected` sources that are in `sight`."""
        attended = _attend_to_kept(self.query(x), projected, self.num_heads, sight, maps, self.dropout)
        return project_update(self.output, attended)
