"""Every family in plain PyTorch: the papers' equations, one operation after the other.

The fast models are tested against it, in values and gradients, and benchmarks compare with it. It shares no layer and
no operation with them, only configurations and names of weights. It is deliberately slow: no fused operation, no cache,
no separate projection of the summands of an input. It runs in any floating-point type; in float64 it is exact to that
type. The equations are those of

- Li et al. 2020, "Neural Machine Translation with Joint Representation" (Eqs. 1-6);
- Emelin, Titov, Sennrich 2019, "Widening the Representation Bottleneck in Neural Machine Translation with Lexical
  Shortcuts" (Eqs. 5-14);
- Vaswani et al. 2017, "Attention Is All You Need" (the Transformer).

Shapes: a sequence is `[B, L, E]`, the grid `[B, S, T, E]`. Masks are True at what may be attended to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.models.common import FamilyConfig
from jointnmt.models.interface import DecoderState, TranslationModel
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.text.special import pad_id

Source = Float[Tensor, "B S E"]
Target = Float[Tensor, "B T E"]
Grid = Float[Tensor, "B S T E"]
Mask = Bool[Tensor, "B S"]
Axes = tuple[int, ...]
TIED = {
    "separate": {},
    "target": {"output.weight": "target_embedding.weight"},
    "all": {"target_embedding.weight": "source_embedding.weight", "output.weight": "source_embedding.weight"},
}
"""Tied tables: names of weights that are others, for each value of a configuration's `embeddings`."""


class Reference(TranslationModel):
    """A model of any family of this package in plain PyTorch.

    Args:
        config: settings of the model, all of which are supported; activation checkpointing is ignored.
        weights: weights by name: the `state_dict()` of the family's model, which is copied, or its parameters,
            `dict(model.named_parameters())`, which are shared and receive the gradients.

    Raises:
        TypeError: if the family is another package's.
    """

    config: TransformerConfig | ReformerBaseConfig | ReformerFastConfig

    def __init__(self, config: FamilyConfig, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        if not isinstance(config, TransformerConfig | ReformerBaseConfig | ReformerFastConfig):
            raise TypeError(f"there is no reference for the family {config.family!r}")
        self.config = config
        self.emelin_compatible = isinstance(config, TransformerConfig) and config.emelin_compatible
        self.post_norm = isinstance(config, TransformerConfig) and config.norm == "post"
        self.embedding_dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
        self.weights: dict[str, nn.Parameter] = {}
        for name, tensor in weights.items():
            if name not in TIED[config.embeddings]:
                shared = isinstance(tensor, nn.Parameter)
                self.weights[name] = cast(nn.Parameter, tensor) if shared else nn.Parameter(tensor.clone())
        self.weights |= {name: self.weights[other] for name, other in TIED[config.embeddings].items()}
        for name, parameter in self.weights.items():  # as parameters of these names, in empty modules
            *path, last = name.split(".")
            module: nn.Module = self
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, nn.Module())
                module = getattr(module, part)
            module.register_parameter(last, parameter)

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: object = None
    ) -> Float[Tensor, "B T V"]:
        """Teacher-forced logits. `attn_weights` must be None: attention weights are not recorded."""
        assert attn_weights is None, "the reference does not record attention weights"
        mask = source != pad_id
        x, y = self.embed("source_embedding", source), self.embed("target_embedding", target_input)
        if isinstance(self.config, TransformerConfig):
            return self.linear("output", self.transformer(self.config, x, y, mask))
        return self.linear("output", self.reformer(self.config, x, y, mask))

    # Li et al. 2020

    def reformer(self, config: ReformerBaseConfig | ReformerFastConfig, x: Source, y: Target, mask: Mask) -> Target:
        """Reformer-base or, with a PreNet, Reformer-fast: the grid, its layers, the reduction."""
        if isinstance(config, ReformerFastConfig):
            x = self.encode("prenet", config.prenet_layers, x, mask)
        embedded = grid = x[:, :, None] + y[:, None]  # Eq. 4
        for i in range(config.num_layers):
            grid = self.grid_layer(f"layers.{i}", grid, embedded, mask, config.shared_dropout)
        return self.reduce(grid, mask, config.reduction)

    def grid_layer(self, name: str, x: Grid, embedded: Grid, mask: Mask, shared_dropout: bool) -> Grid:
        """Target attention, feed-forward, source attention, feed-forward, each `x + dropout(f(norm(x)))` (Eq. 1).

        Attention is separable (Eq. 5): along T for each source position, along S for each target position. Dropout1d
        and Dropout2d share a dropout mask along one and two axes.
        """
        source, target, both = ((1,), (2,), (1, 2)) if shared_dropout else ((), (), ())
        rate, past, real = self.config.dropout, causal(x), mask[:, None, None, None]
        y, lexical = self.layer_norm(f"{name}.target_norm", x), self.lexical("target", embedded)
        y = self.self_attention(f"{name}.target_attention", y, past, lexical, shared=source)
        x = x + self.drop(y, rate, source)
        y = self.ffn(f"{name}.target_ffn", self.layer_norm(f"{name}.target_ffn_norm", x), both)
        x = x + self.drop(y, rate, both)
        y, lexical = self.layer_norm(f"{name}.source_norm", x), self.lexical("source", embedded.transpose(1, 2))
        y = self.self_attention(f"{name}.source_attention", y.transpose(1, 2), real, lexical, shared=source)
        x = x + self.drop(y.transpose(1, 2), rate, target)
        y = self.ffn(f"{name}.source_ffn", self.layer_norm(f"{name}.source_ffn_norm", x), both)
        return x + self.drop(y, rate, both)

    def reduce(self, grid: Grid, mask: Mask, kind: str) -> Target:
        """Eq. 6: `norm(sum_s softmax_s(x W) * x)` with `x = norm(grid)`, per feature; or the max or mean instead."""
        x, real = self.layer_norm("reduction.input_norm", grid), mask[:, :, None, None]
        if kind == "max":
            reduced = x.masked_fill(~real, -torch.inf).amax(dim=1)
        elif kind == "mean":
            reduced = (x * real).sum(dim=1) / real.sum(dim=1)
        else:
            scores = self.linear("reduction.scores", x)
            reduced = (scores.masked_fill(~real, -torch.inf).softmax(dim=1) * x).sum(dim=1)
        return self.layer_norm("reduction.output_norm", reduced)

    # Vaswani et al. 2017

    def transformer(self, config: TransformerConfig, x: Source, y: Target, mask: Mask) -> Target:
        """Encoder and decoder. Emelin et al. apply dropout to the decoder's input a second time."""
        memory = self.encode("encoder", config.encoder_layers, x, mask)
        if self.emelin_compatible:
            y = self.drop(y, self.embedding_dropout)
        states, source_lexical = [y], self.lexical("cross", x)
        for i in range(config.decoder_layers):
            lexical = self.lexical("decoder", self.below(states))
            states.append(self.decoder_layer(f"layers.{i}", states[-1], lexical, memory, source_lexical, mask))
        return states[-1] if self.post_norm else self.layer_norm("norm", states[-1])

    def decoder_layer(
        self, name: str, x: Target, lexical: Target | None, memory: Source, source_lexical: Source | None, mask: Mask
    ) -> Target:
        """Causal self-attention, attention to the encoder's output, feed-forward."""
        own, cross, past, real = f"{name}.self_attention", f"{name}.cross_attention", causal(x), mask[:, None, None]
        raw, cross_adds_normed = (self.emelin_compatible and each is not None for each in (lexical, source_lexical))
        hidden, key_value = x if raw else None, self.linear(f"{cross}.key_value", memory)
        if source_lexical is not None:
            key_value = self.gated_kv(f"{cross}.shortcut", key_value, source_lexical)
        key, value = key_value.chunk(2, dim=-1)

        def attend_to_source(y: Target) -> Target:
            return self.attention(cross, self.linear(f"{cross}.query", y), key, value, real)

        x = self.residual(f"{name}.self", x, lambda y: self.self_attention(own, y, past, lexical, hidden), raw)
        x = self.residual(f"{name}.cross", x, attend_to_source, cross_adds_normed)
        return self.residual(f"{name}.ffn", x, lambda y: self.ffn(f"{name}.ffn", y))

    def encode(self, name: str, num_layers: int, x: Source, mask: Mask) -> Source:
        """The encoder of a Transformer, or the PreNet of Reformer-fast."""
        states = [x]
        for i in range(num_layers):
            lexical = self.lexical(name, self.below(states))
            states.append(self.encoder_layer(f"{name}.layers.{i}", states[-1], lexical, mask))
        return states[-1] if self.post_norm else self.layer_norm(f"{name}.norm", states[-1])

    def encoder_layer(self, name: str, x: Source, lexical: Source | None, mask: Mask) -> Source:
        """Self-attention, feed-forward."""
        own, real, raw = f"{name}.attention", mask[:, None, None], self.emelin_compatible and lexical is not None
        hidden = x if raw else None
        x = self.residual(f"{name}.attention", x, lambda y: self.self_attention(own, y, real, lexical, hidden), raw)
        return self.residual(f"{name}.ffn", x, lambda y: self.ffn(f"{name}.ffn", y))

    def residual(self, name: str, x: Tensor, f: Callable[[Tensor], Tensor], adds_normed: bool = False) -> Tensor:
        """Pre-norm `x + dropout(f(norm(x)))`, or post-norm `norm(x + dropout(f(x)))`.

        `adds_normed`: `norm(x) + dropout(f(norm(x)))`, as in Emelin et al.'s code around attention with shortcuts.
        """
        norm, rate = f"{name}_residual.norm", self.config.dropout
        if self.post_norm:
            return self.layer_norm(norm, x + self.drop(f(x), rate))
        normed = self.layer_norm(norm, x)
        return (normed if adds_normed else x) + self.drop(f(normed), rate)

    # Emelin et al. 2019

    def lexical(self, place: str, embedded: Tensor) -> Tensor | None:
        """The lexical input of attention at `place`: `embedded` where the model has shortcuts, otherwise None."""
        return embedded if place in self.config.shortcut_places else None

    def below(self, states: list[Tensor]) -> Tensor:
        """The lexical input of the next layer: the embeddings, or the output two layers below, if there is one."""
        return states[max(len(states) - 2, 0) if self.config.reads_two_below else 0]

    def gated_kv(self, name: str, hidden: Tensor, embedded: Float[Tensor, "*places E"]) -> Float[Tensor, "*places EE"]:
        """Keys, then values: a gated mixture of a lexical and a hidden half; `hidden` is already projected.

            K_sc = E W^K,sc    V_sc = E W^V,sc    K_h = H W^K    V_h = H W^V    (Eqs. 5-8), or with feature fusion
            [K_sc; K_h] = [E; H] W^K              [V_sc; V_h] = [E; H] W^V      (Eqs. 13-14)
            r = sigmoid(K_sc + K_h + b)           likewise for V                (Eqs. 9-10)
            K = r * K_sc + (1 - r) * K_h          likewise for V                (Eqs. 11-12)

        The product of feature fusion is the sum of E's and H's, with features in the order K_sc, V_sc, K_h, V_h.
        """
        lexical = self.linear(f"{name}.lexical", embedded)
        if self.config.shortcuts is not None and self.config.shortcuts.kind == "fusion":
            lexical, hidden = (lexical + hidden).chunk(2, dim=-1)
        gate = torch.sigmoid(lexical + hidden + self.weights[f"{name}.gate_bias"].flatten())
        return gate * lexical + (1 - gate) * hidden

    # What all have in common

    def self_attention(
        self,
        name: str,
        x: Float[Tensor, "*places L E"],
        mask: Bool[Tensor, ...],
        lexical: Tensor | None = None,
        hidden: Tensor | None = None,
        shared: Axes = (),
    ) -> Float[Tensor, "*places L E"]:
        """Attention along L; keys and values are projected from `hidden` or `x`, and mixed with `lexical`, if given."""
        projected, embed_dim = self.linear(f"{name}.qkv", x), x.shape[-1]
        if lexical is None:
            query, key, value = projected.chunk(3, dim=-1)
        else:
            query, key_value = projected[..., :embed_dim], projected[..., embed_dim:]
            if hidden is not None:
                key_value = self.linear(f"{name}.qkv", hidden)[..., embed_dim:]
            key, value = self.gated_kv(f"{name}.shortcut", key_value, lexical).chunk(2, dim=-1)
        return self.attention(name, query, key, value, mask, shared)

    def attention(
        self,
        name: str,
        query: Float[Tensor, "*places Q E"],
        key: Float[Tensor, "*places L E"],
        value: Float[Tensor, "*places L E"],
        mask: Bool[Tensor, ...],
        shared: Axes = (),
    ) -> Float[Tensor, "*places Q E"]:
        """Multi-head `softmax(Q K^T / sqrt(D)) V` (Li et al. 2020, Eq. 2, with D of one head, as in their code).

        `mask` is broadcast to the weights `[*places, H, Q, L]`; `shared` are axes of the weights.
        """
        heads = (part.unflatten(-1, (self.config.num_heads, -1)) for part in (query, key, value))
        q, k, v = (part.transpose(-3, -2) for part in heads)  # [*places, H, Q or L, D]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        attended = self.drop(weights, self.config.attention_dropout, shared) @ v
        return self.linear(f"{name}.output", attended.transpose(-3, -2).flatten(-2))

    def ffn(self, name: str, x: Float[Tensor, "*places E"], shared: Axes = ()) -> Float[Tensor, "*places E"]:
        """`max(0, x W1 + b1) W2 + b2` (Li et al. 2020, Eq. 3), with dropout on the hidden layer.

        Emelin et al.'s code has dropout on x instead.
        """
        rate, drops_input = self.config.hidden_dropout, self.emelin_compatible
        hidden = self.linear(f"{name}.hidden", self.drop(x, rate if drops_input else 0)).relu()
        return self.linear(f"{name}.output", self.drop(hidden, 0 if drops_input else rate, shared))

    def embed(self, name: str, ids: Int[Tensor, "B L"]) -> Float[Tensor, "B L E"]:
        """`dropout(sqrt(E) * embedding + position)`; positions are all sines, then all cosines, and count from 0."""
        table, half = self.weights[f"{name}.weight"], self.config.embed_dim // 2
        places, features = (torch.arange(n, dtype=torch.float64, device=ids.device) for n in (ids.shape[1], half))
        angles = places[:, None] * 10_000.0 ** (-features / max(half - 1, 1))
        positions = functional.pad(torch.cat([angles.sin(), angles.cos()], 1), (0, self.config.embed_dim - 2 * half))
        embedded = functional.embedding(ids, table, padding_idx=pad_id) * math.sqrt(self.config.embed_dim)
        return self.drop(embedded + positions.to(table.dtype), self.embedding_dropout)

    def layer_norm(self, name: str, x: Tensor) -> Tensor:
        """Layer norm over features."""
        return functional.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def linear(self, name: str, x: Tensor) -> Tensor:
        """`x W^T + b`, or `x W^T` without a bias."""
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def drop(self, x: Tensor, rate: float, shared: Axes = ()) -> Tensor:
        """Dropout while training, with a dropout mask shared along the `shared` axes."""
        if not self.training or rate == 0:
            return x
        shape = [1 if axis in shared else length for axis, length in enumerate(x.shape)]
        return x * functional.dropout(x.new_ones(shape), rate)

    # Decoding

    def start(self, source: Int[Tensor, "B S"]) -> ReferenceState:
        return ReferenceState(source, source.new_empty(len(source), 0))

    def step(self, last_ids: Int[Tensor, " N"], state: DecoderState) -> tuple[Float[Tensor, "N V"], ReferenceState]:
        """Logits of the last position, from a forward pass over the whole target so far."""
        assert isinstance(state, ReferenceState)
        state = ReferenceState(state.source, torch.cat([state.target_input, last_ids[:, None]], 1))
        return self(state.source, state.target_input)[:, -1], state


@dataclass(frozen=True)
class ReferenceState:
    """Inputs of each row so far; nothing is cached."""

    source: Int[Tensor, "N S"]
    target_input: Int[Tensor, "N t"]

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        return type(self)(self.source[rows], self.target_input[rows])


def causal(x: Float[Tensor, "*places T E"]) -> Bool[Tensor, "T T"]:
    """Causal mask: True for a position itself and earlier ones."""
    length = x.shape[-2]
    return torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
