"""Multi-head attention over sequences and grids, and the one place that computes attention and its masks."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.models.layers.batched_attention import batched_attention
from jointnmt.models.layers.cache import KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout


def attend(
    query: Float[Tensor, "*batch Q D"],
    key: Float[Tensor, "*batch L D"],
    value: Float[Tensor, "*batch L D"],
    bias: Float[Tensor, ...] | None = None,
    dropout: SharedDropout | None = None,
    maps: list[Tensor] | None = None,
) -> Float[Tensor, "*batch Q D"]:
    """Scaled dot-product attention, `softmax(query key^T / sqrt(D) + bias) value`.

    The scale is that of one head, 1/sqrt(D), as in the authors' code; Li et al. 2020, Eq. 2 prints the model's size.
    On a GPU the library's fused kernels do it, unless weights are asked for or dropped. On a CPU, batched products
    and a softmax are faster at sentence lengths.

    Args:
        bias: 0 where attention is allowed, minus infinity elsewhere; broadcast to `[*batch, Q, L]`.
        dropout: applied to the weights.
        maps: if given, the weights `[*batch, Q, L]` are appended, as they are before dropout.
    """
    drops_weights = dropout is not None and dropout.training and dropout.rate > 0
    if query.is_cuda and maps is None and not drops_weights:
        return _fused(query, key, value, bias)
    scores = torch.matmul(query / math.sqrt(query.shape[-1]), key.transpose(-2, -1))
    if bias is not None:
        scores = scores + bias
    weights = torch.softmax(scores, dim=-1)
    if maps is not None:
        maps.append(weights.detach())
    if dropout is not None:
        weights = dropout(weights)
    return torch.matmul(weights, value)


def _fused(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """The library's fused kernels, which take four axes: leading ones are merged, as a view where strides allow it."""
    leading = query.shape[:-3]
    if bias is not None:
        bias = bias.expand(*query.shape[:-1], key.shape[-2]).reshape(
            -1, query.shape[-3], query.shape[-2], key.shape[-2]
        )
    query, key, value = (tensor.reshape(-1, *tensor.shape[-3:]) for tensor in (query, key, value))
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=bias).unflatten(0, leading)


def prefers_batched_products(qkv: Tensor, dropout: SharedDropout, maps: list[Tensor] | None) -> bool:
    """Whether `batched_attention` can take a self-attention, and is the fastest for it: training on a CPU."""
    return (
        qkv.device.type == "cpu" and qkv.requires_grad and maps is None and not (dropout.training and dropout.rate > 0)
    )


def causal_bias(length: int, like: Tensor) -> Float[Tensor, "T T"]:
    """0 at a position's own past, itself included, and minus infinity at its future."""
    return torch.full((length, length), -torch.inf, dtype=like.dtype, device=like.device).triu_(1)


def mask_bias(mask: Bool[Tensor, "B S"], like: Tensor) -> Float[Tensor, "B S"]:
    """0 where `mask` is True, minus infinity elsewhere."""
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(~mask, -torch.inf)


def split_heads(x: Float[Tensor, "*places E"], num_heads: int) -> Float[Tensor, "*places H D"]:
    """Features as heads; a view."""
    return x.unflatten(-1, (num_heads, x.shape[-1] // num_heads))


def projection(inputs: int, outputs: int, xavier_outputs: int | None = None) -> nn.Linear:
    """A linear layer with Xavier-uniform weight and zero bias.

    A matrix that holds several projections is drawn as one block, as the authors do: queries, keys and values of an
    attention layer are one `[3E, E]` block, even where they are stored apart; then `xavier_outputs` is 3E.
    """
    linear = nn.Linear(inputs, outputs)
    bound = math.sqrt(6 / (inputs + (xavier_outputs or outputs)))
    nn.init.uniform_(linear.weight, -bound, bound)
    nn.init.zeros_(linear.bias)
    return linear


class SelfAttention(nn.Module):
    """Multi-head attention along one axis, separately for every place of the others; all projections have biases.

    On a sequence `[B, L, E]` it is that of Vaswani et al. 2017. On the grid `[B, S, T, E]` it is the separable
    attention of Li et al. 2020, Eq. 5: source attention along axis 1, target attention along axis 2.
    """

    def __init__(self, embed_dim: int, num_heads: int, weight_dropout: SharedDropout, axis: int = 1) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.axis = axis
        self.qkv = projection(embed_dim, 3 * embed_dim)
        self.output = projection(embed_dim, embed_dim)
        self.dropout = weight_dropout

    def forward(
        self,
        x: Float[Tensor, "B *places E"],
        bias: Float[Tensor, ...] | None,
        cache: KeyValueCache | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B *places E"]:
        """Attend where `bias` (0 or minus infinity) allows.

        It is broadcast to `[B, H, L, L]` for a sequence, `[B, T, H, S, S]` or `[B, S, H, T, T]` for a grid. With a
        `cache`, the axis holds the newest position of the rows of each of B sentences, and they attend to its slots.
        """
        qkv = self.qkv(x)
        if cache is None and prefers_batched_products(qkv, self.dropout, maps):
            return self.output(batched_attention(qkv, self.num_heads, bias, self.axis))
        heads = split_heads(qkv, 3 * self.num_heads).movedim(self.axis, -2)  # -> [B, kept axes, 3H, L, D]
        query, key, value = heads.chunk(3, dim=-3)
        if cache is not None:
            key, value = cache.append(key, value)
        attended = attend(query, key, value, bias, self.dropout, maps)  # [B, kept axes, H, L, D]
        return self.output(attended.movedim(-2, self.axis).flatten(-2))


class CrossAttention(nn.Module):
    """Multi-head attention of target positions over the encoder's output."""

    def __init__(self, embed_dim: int, num_heads: int, attention_dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = projection(embed_dim, embed_dim, xavier_outputs=3 * embed_dim)
        self.key_value = projection(embed_dim, 2 * embed_dim, xavier_outputs=3 * embed_dim)
        self.output = projection(embed_dim, embed_dim)
        self.dropout = SharedDropout(attention_dropout)

    def project(self, memory: Float[Tensor, "B S E"]) -> Float[Tensor, "B HH S D"]:
        """Keys (the first H heads) and values (the other H) of the encoder's output, the same for every position."""
        return split_heads(self.key_value(memory), 2 * self.num_heads).transpose(1, 2)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        projected: Float[Tensor, "B HH S D"],
        bias: Float[Tensor, ...],
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B T E"]:
        """Attend to `projected` sources where `bias` allows."""
        query = split_heads(self.query(x), self.num_heads).transpose(1, 2)
        key, value = projected.chunk(2, dim=1)
        attended = attend(query, key, value, bias, self.dropout, maps)
        return self.output(attended.transpose(1, 2).flatten(2))
