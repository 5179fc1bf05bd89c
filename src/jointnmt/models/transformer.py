"""The Transformer (Vaswani et al. 2017): the baseline, and the encoder that Reformer-fast takes as its PreNet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from jointnmt.models.common import ModelSettings, compute_type, embedding_tables, run_layer
from jointnmt.models.interface import AttentionMaps, DecoderState, TranslationModel
from jointnmt.models.layers.attention import CrossAttention, SelfAttention, causal_bias, mask_bias
from jointnmt.models.layers.cache import CachedState, KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.text.special import pad_id

NormPlace = Literal["pre", "post"]


class TransformerConfig(ModelSettings):
    """The Transformer baseline."""

    family: Literal["transformer"] = "transformer"
    encoder_layers: int = Field(6, ge=1, description="layers of the encoder")
    decoder_layers: int = Field(6, ge=1, description="layers of the decoder")
    norm: NormPlace = Field("pre", description="layer norm before each sub-layer, and one at the end; or after each")


class Residual(nn.Module):
    """What surrounds a sub-layer f.

    Pre-norm: `x + dropout(f(norm(x)))` (Li et al. 2020, Eq. 1). Post-norm: `norm(x + dropout(f(x)))` (Vaswani et al.
    2017, section 3.1).
    """

    def __init__(self, embed_dim: int, norm: NormPlace, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.norm_first = norm == "pre"
        self.dropout = SharedDropout(dropout)

    def forward(self, x: Float[Tensor, "B L E"], sub_layer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B L E"]:
        if self.norm_first:
            return self.dropout.add(x, sub_layer(self.norm(x)))
        return self.norm(self.dropout.add(x, sub_layer(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelSettings, norm: NormPlace) -> None:
        super().__init__()
        self.attention = SelfAttention(config.embed_dim, config.num_heads, SharedDropout(config.attention_dropout))
        self.attention_residual = Residual(config.embed_dim, norm, config.dropout)
        self.ffn = FeedForward(config.embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout))
        self.ffn_residual = Residual(config.embed_dim, norm, config.dropout)

    def forward(
        self, x: Float[Tensor, "B S E"], bias: Float[Tensor, ...], maps: list[Tensor] | None = None
    ) -> Float[Tensor, "B S E"]:
        x = self.attention_residual(x, lambda y: self.attention(y, bias, maps=maps))
        return self.ffn_residual(x, self.ffn)


class Encoder(nn.Module):
    """A stack of encoder layers; pre-norm ends with a layer norm of its own."""

    def __init__(self, config: ModelSettings, num_layers: int, norm: NormPlace = "pre") -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(EncoderLayer(config, norm) for _ in range(num_layers))
        self.norm = nn.LayerNorm(config.embed_dim) if norm == "pre" else nn.Identity()

    def forward(
        self, embedded: Float[Tensor, "B S E"], mask: Bool[Tensor, "B S"], maps: list[Tensor] | None = None
    ) -> Float[Tensor, "B S E"]:
        """Encode; `mask` is True at real tokens."""
        x = embedded
        bias = mask_bias(mask, x)[:, None, None]
        for layer in self.layers:
            x = run_layer(layer, self.config, x, bias, maps)
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, and feed-forward."""

    def __init__(self, config: ModelSettings, norm: NormPlace) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config.embed_dim, config.num_heads, SharedDropout(config.attention_dropout))
        self.self_residual = Residual(config.embed_dim, norm, config.dropout)
        self.cross_attention = CrossAttention(config.embed_dim, config.num_heads, config.attention_dropout)
        self.cross_residual = Residual(config.embed_dim, norm, config.dropout)
        self.ffn = FeedForward(config.embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout))
        self.ffn_residual = Residual(config.embed_dim, norm, config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        projected_source: Float[Tensor, "B HH S D"],
        self_bias: Float[Tensor, ...],
        source_bias: Float[Tensor, ...],
        cache: KeyValueCache | None = None,
        maps: AttentionMaps | None = None,
    ) -> Float[Tensor, "B T E"]:
        """One layer; with a `cache`, T runs over the rows of each sentence (see `SelfAttention`)."""
        self_maps = None if maps is None else maps.decoder
        cross_maps = None if maps is None else maps.cross
        x = self.self_residual(x, lambda y: self.self_attention(y, self_bias, cache, self_maps))
        x = self.cross_residual(x, lambda y: self.cross_attention(y, projected_source, source_bias, cross_maps))
        return self.ffn_residual(x, self.ffn)


class Transformer(TranslationModel):
    """Encoder and decoder."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        tables = embedding_tables(config, source_vocabulary, target_vocabulary)
        self.source_embedding, self.target_embedding, self.output = tables
        self.encoder = Encoder(config, config.encoder_layers, config.norm)
        self.layers = nn.ModuleList(DecoderLayer(config, config.norm) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.embed_dim) if config.norm == "pre" else nn.Identity()

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], maps: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        memory = self.encode(source, maps)
        x = compute_type(self.target_embedding(target_input))
        self_bias = causal_bias(x.shape[1], x)
        source_bias = mask_bias(source != pad_id, x)[:, None, None]
        for layer, projected in zip(self.layers, self._project(memory), strict=True):
            x = run_layer(layer, self.config, x, projected, self_bias, source_bias, None, maps)
        return self._predict(x, maps)

    def encode(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None = None) -> Float[Tensor, "B S E"]:
        """The encoder's output."""
        embedded = compute_type(self.source_embedding(source))
        return self.encoder(embedded, source != pad_id, None if maps is None else maps.encoder)

    def start(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None = None) -> CachedState:
        projected = self._project(self.encode(source, maps))
        constants = {f"projected_{i}": tensor for i, tensor in enumerate(projected)}
        return CachedState(len(self.layers), {"mask": source != pad_id, **constants})

    def step(
        self, last_ids: Int[Tensor, " N"], state: DecoderState, maps: AttentionMaps | None = None
    ) -> tuple[Float[Tensor, "N V"], CachedState]:
        assert isinstance(state, CachedState)
        state.advance()
        x = compute_type(self.target_embedding(last_ids[:, None], start=state.position))
        x = x.view(state.num_sentences, state.rows_per_sentence, -1)  # [N, 1, E] -> [G, R, E]
        self_bias = state.slot_bias(x.dtype)[:, None]
        source_bias = mask_bias(state.constants["mask"], x)[:, None, None]
        for i, (layer, cache) in enumerate(zip(self.layers, state.caches, strict=True)):
            x = layer(x, state.constants[f"projected_{i}"], self_bias, source_bias, cache, maps)
        logits = self._predict(x, maps)
        if maps is not None:
            maps.decoder = [state.by_position(weights) for weights in maps.decoder]
            maps.cross = [weights.transpose(1, 2).flatten(0, 1).unsqueeze(2) for weights in maps.cross]
            maps.alignment = None if maps.alignment is None else maps.alignment.flatten(0, 1).unsqueeze(1)
        return logits.flatten(0, 1), state

    def _project(self, memory: Float[Tensor, "B S E"]) -> list[Float[Tensor, "B HH S D"]]:
        """The keys and values that each decoder layer makes of the encoder's output."""
        return [cast(DecoderLayer, layer).cross_attention.project(memory) for layer in self.layers]

    def _predict(self, x: Float[Tensor, "B T E"], maps: AttentionMaps | None) -> Float[Tensor, "B T V"]:
        if maps is not None:
            maps.alignment = torch.stack([weights.float().mean(dim=1) for weights in maps.cross]).mean(dim=0)
        return self.output(self.norm(x))
