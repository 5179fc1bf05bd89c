"""The yardstick: the models' equations in eager PyTorch, one operation after the other, without caches or fast paths.

Li et al. 2020, Eqs. 1-6, and Vaswani et al. 2017 in their pre-norm form; docs/models.md has them. Weights are those of
a model of the package, by name. Shapes: a sequence is `[B, L, E]`, the grid `[B, S, T, E]`; masks are True where
attention may look.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from jointnmt.models.interface import AttentionMaps, DecoderState, TranslationModel
from jointnmt.models.reformer import ReformerFastConfig, ReformerSettings
from jointnmt.text.special import pad_id

SOURCE_AXIS, TARGET_AXIS = 1, 2


class PlainModel(TranslationModel):
    """A model of the package computed plainly, with the same weights and the same interface.

    Args:
        model: of a family, with the sizes and the dropout of one's choice and defaults for the rest.

    Raises:
        ValueError: if it has another setting.
    """

    OTHERS = (
        "shortcuts",
        "embedding_dropout",
        "attention_dropout",
        "hidden_dropout",
        "norm",
        "emelin_compatible",
        "reduction",
    )

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        config: Any = model.config
        fields = type(config).model_fields
        changed = [name for name in self.OTHERS if name in fields and getattr(config, name) != fields[name].default]
        if changed:
            raise ValueError(f"the plain implementation has defaults only for {', '.join(changed)}")
        self.model, self.config = model, config
        self.weights = dict(model.named_parameters(remove_duplicate=False))

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        mask = source != pad_id
        x, y = self.embed(source, "source_embedding"), self.embed(target_input, "target_embedding")
        if isinstance(self.config, ReformerSettings):
            hidden = self.reformer(x, y, mask)
        else:
            hidden = self.transformer(x, y, mask)
        return functional.linear(hidden, self.weights["output.weight"])

    def transformer(
        self, x: Float[Tensor, "B S E"], y: Float[Tensor, "B T E"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B T E"]:
        """Encoder and decoder."""
        memory = self.encoder(x, mask, "encoder", self.config.encoder_layers)
        past = causal(y.shape[1], y.device)
        for i in range(self.config.decoder_layers):
            name = f"layers.{i}"
            normed = self.norm(y, f"{name}.self_residual.norm")
            y = y + self.drop(self.self_attention(normed, f"{name}.self_attention", 1, past))
            normed = self.norm(y, f"{name}.cross_residual.norm")
            y = y + self.drop(self.cross_attention(normed, memory, f"{name}.cross_attention", mask))
            y = y + self.drop(self.feed_forward(self.norm(y, f"{name}.ffn_residual.norm"), f"{name}.ffn"))
        return self.norm(y, "norm")

    def reformer(
        self, x: Float[Tensor, "B S E"], y: Float[Tensor, "B T E"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B T E"]:
        """Eq. 4, Eq. 5 in each layer, Eq. 6."""
        if isinstance(self.config, ReformerFastConfig):
            x = self.encoder(x, mask, "prenet", self.config.prenet_layers)
        grid = x[:, :, None] + y[:, None]  # Eq. 4
        past, real = causal(y.shape[1], y.device), mask[:, None, None, None]
        along_source, along_target, everywhere = ((1,), (2,), (1, 2)) if self.config.shared_dropout else ((), (), ())
        for i in range(self.config.num_layers):
            name = f"layers.{i}"
            normed = self.norm(grid, f"{name}.target_norm")
            attended = self.self_attention(normed, f"{name}.target_attention", TARGET_AXIS, past)
            grid = grid + self.drop(attended, along_source)
            hidden = self.feed_forward(self.norm(grid, f"{name}.target_ffn_norm"), f"{name}.target_ffn")
            grid = grid + self.drop(hidden, everywhere)
            normed = self.norm(grid, f"{name}.source_norm")
            attended = self.self_attention(normed, f"{name}.source_attention", SOURCE_AXIS, real)
            grid = grid + self.drop(attended, along_target)
            hidden = self.feed_forward(self.norm(grid, f"{name}.source_ffn_norm"), f"{name}.source_ffn")
            grid = grid + self.drop(hidden, everywhere)
        return self.reduce(grid, mask)

    def reduce(self, grid: Float[Tensor, "B S T E"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B T E"]:
        """Eq. 6, with attention."""
        x = self.norm(grid, "reduction.input_norm")
        scores = functional.linear(x, self.weights["reduction.scores.weight"])
        weights = scores.masked_fill(~mask[:, :, None, None], -torch.inf).softmax(dim=1)
        return self.norm((weights * x).sum(dim=1), "reduction.output_norm")

    def encoder(
        self, x: Float[Tensor, "B S E"], mask: Bool[Tensor, "B S"], name: str, layers: int
    ) -> Float[Tensor, "B S E"]:
        """A stack of self-attention and feed-forward, and a layer norm."""
        for i in range(layers):
            layer = f"{name}.layers.{i}"
            normed = self.norm(x, f"{layer}.attention_residual.norm")
            x = x + self.drop(self.self_attention(normed, f"{layer}.attention", 1, mask[:, None, None]))
            x = x + self.drop(self.feed_forward(self.norm(x, f"{layer}.ffn_residual.norm"), f"{layer}.ffn"))
        return self.norm(x, f"{name}.norm")

    def self_attention(self, x: Tensor, name: str, axis: int, mask: Bool[Tensor, ...]) -> Tensor:
        """Multi-head attention along `axis` of `[B, *places, E]`."""
        rows = x.movedim(axis, -2)
        query, key, value = (self.heads(part) for part in self.linear(rows, f"{name}.qkv").chunk(3, dim=-1))
        attended = attention(query, key, value, mask)
        return self.linear(attended.transpose(-3, -2).flatten(-2), f"{name}.output").movedim(-2, axis)

    def cross_attention(
        self, y: Float[Tensor, "B T E"], memory: Float[Tensor, "B S E"], name: str, mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B T E"]:
        """Multi-head attention to the encoder's output."""
        query = self.heads(self.linear(y, f"{name}.query"))
        key, value = (self.heads(part) for part in self.linear(memory, f"{name}.key_value").chunk(2, dim=-1))
        attended = attention(query, key, value, mask[:, None, None])
        return self.linear(attended.transpose(-3, -2).flatten(-2), f"{name}.output")

    def feed_forward(self, x: Tensor, name: str) -> Tensor:
        """Eq. 3."""
        return self.linear(self.linear(x, f"{name}.hidden").relu(), f"{name}.output")

    def embed(self, ids: Int[Tensor, "B L"], name: str) -> Float[Tensor, "B L E"]:
        """`dropout(sqrt(E) * embedding + position)`, all sines before all cosines."""
        half = self.config.embed_dim // 2
        rates = torch.exp(torch.arange(half, device=ids.device) * (-math.log(10_000) / max(half - 1, 1)))
        angles = torch.arange(ids.shape[1], device=ids.device)[:, None] * rates
        positions = functional.pad(torch.cat([angles.sin(), angles.cos()], 1), (0, self.config.embed_dim - 2 * half))
        embedded = functional.embedding(ids, self.weights[f"{name}.weight"], padding_idx=pad_id)
        return self.drop(embedded * math.sqrt(self.config.embed_dim) + positions)

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Layer norm over features."""
        return functional.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A projection of features."""
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def heads(self, x: Float[Tensor, "*places L E"]) -> Float[Tensor, "*places H L D"]:
        """Features as heads."""
        return x.unflatten(-1, (self.config.num_heads, -1)).transpose(-3, -2)

    def drop(self, x: Tensor, shared_axes: tuple[int, ...] = ()) -> Tensor:
        """Dropout with one draw of noise for all places along the shared axes."""
        if not self.training or self.config.dropout == 0:
            return x
        shape = [1 if axis in shared_axes else length for axis, length in enumerate(x.shape)]
        return x * functional.dropout(x.new_ones(shape), self.config.dropout)

    def start(self, source: Int[Tensor, "B S"]) -> PlainState:
        return PlainState(source, source.new_empty(len(source), 0))

    def step(self, last_ids: Int[Tensor, " N"], state: DecoderState) -> tuple[Float[Tensor, "N V"], PlainState]:
        """The last position of the whole model, computed anew over all that has been read."""
        assert isinstance(state, PlainState)
        state = PlainState(state.source, torch.cat([state.target_input, last_ids[:, None]], 1))
        return self(state.source, state.target_input)[:, -1], state


@dataclass(frozen=True)
class PlainState:
    """All that the rows have read; nothing that was computed of it."""

    source: Int[Tensor, "N S"]
    target_input: Int[Tensor, "N t"]

    @property
    def num_rows(self) -> int:
        return len(self.source)

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        return type(self)(self.source[rows], self.target_input[rows])


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Bool[Tensor, ...]) -> Float[Tensor, "*places Q D"]:
    """Eq. 2, scaled by the size of a head."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ value


def causal(length: int, device: torch.device) -> Bool[Tensor, "T T"]:
    """True at a position's own past, itself included."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
