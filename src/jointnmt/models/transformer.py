"""The Transformer (Vaswani et al. 2017): the baseline, and the encoder that Reformer-fast uses as its PreNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from jointnmt.models.common import MAX_LAYERS, FamilyConfig, Place, checkpointed, embedding_tables
from jointnmt.models.interface import AttentionMaps, LayerStack, record_at
from jointnmt.models.layers.attention import CrossAttention, SelfAttention
from jointnmt.models.layers.cache import CachedModel, CachedState, KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.layers.shortcut import lexical_summands
from jointnmt.ops import AttentionMask, Biased, Normed, add_norm, dropout_add, normed
from jointnmt.text.special import pad_id

NormPlace = Literal["pre", "post"]


class TransformerConfig(FamilyConfig):
    """Settings of the Transformer baseline."""

    family: Literal["transformer"] = "transformer"
    encoder_layers: int = Field(6, ge=1, le=MAX_LAYERS, description="layers of the encoder")
    decoder_layers: int = Field(6, ge=1, le=MAX_LAYERS, description="layers of the decoder")
    norm: NormPlace = Field("pre", description="layer norm: before each sub-layer and at the end, or after each")
    emelin_compatible: bool = Field(
        False, description="follow the lexical shortcuts' authors' code where it departs from their paper"
    )

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, values: Any) -> Any:
        """Accept `faithful`, the name in runs and recipes from before 1.0."""
        if isinstance(values, Mapping) and "faithful" in values and "emelin_compatible" not in values:
            return {"emelin_compatible" if key == "faithful" else key: value for key, value in values.items()}
        return values

    def attention_depths(self) -> Mapping[Place, int]:
        """See `FamilyConfig`."""
        return {"encoder": self.encoder_layers, "decoder": self.decoder_layers, "cross": self.decoder_layers}

    @property
    def default_loss_mean(self) -> Literal["tokens", "sentences"]:
        """See `FamilyConfig`."""
        return "sentences" if self.emelin_compatible else "tokens"

    @model_validator(mode="after")
    def _emelin_is_pre_norm(self) -> Self:
        if self.emelin_compatible and self.norm == "post":
            raise ValueError("emelin_compatible true needs norm 'pre', the only one in the authors' code")
        return self


class LayerStyle(NamedTuple):
    """Placement of norms and dropout around the sub-layers of encoder and decoder layers."""

    norm: NormPlace = "pre"
    emelin_compatible: bool = False
    """Whether to follow the code of Emelin et al. 2019: a layer with shortcuts computes keys and values from the state
    before the norm, and its residual connection adds to the norm's output; feed-forward blocks drop out their input."""


PRE_NORM = LayerStyle()


class Residual(nn.Module):
    """Norm and dropout around a sub-layer f: `x, y = read(x)`, then `x, y = add(x, y, f(y), following)`.

    Pre-norm: `x + dropout(f(norm(x)))` (Li et al. 2020, Eq. 1). Post-norm: `norm(x + dropout(f(x)))` (Vaswani et al.
    2017, section 3.1). `adds_normed`: `norm(x) + dropout(f(norm(x)))`.
    """

    def __init__(self, embed_dim: int, norm: NormPlace, dropout: float, adds_normed: bool = False) -> None:
        super().__init__()
        self.norm = LayerNorm(embed_dim)
        self.norm_first = norm == "pre"
        self.adds_normed = adds_normed
        self.dropout = SharedDropout(dropout)

    def read(self, x: Float[Tensor, "B L E"]) -> tuple[Float[Tensor, "B L E"], Normed]:
        """The state, and the input of the first sub-layer of a layer."""
        return normed(x, self.norm) if self.norm_first else (x, Normed(x))

    def add(
        self, x: Float[Tensor, "B L E"], y: Normed, update: Biased, following: Residual
    ) -> tuple[Float[Tensor, "B L E"], Normed]:
        """The state after the sub-layer that computed `update` from `y`, and the input of the `following` sub-layer."""
        if not self.norm_first:
            x = add_norm(x, update, self.dropout, self.norm)[1].value
            return x, Normed(x)
        return add_norm(y.value if self.adds_normed else x, update, self.dropout, following.norm)

    def add_last(self, x: Float[Tensor, "B L E"], update: Biased) -> Float[Tensor, "B L E"]:
        """The state after the last sub-layer of a layer."""
        if not self.norm_first:
            return add_norm(x, update, self.dropout, self.norm)[1].value
        return dropout_add(x, update, self.dropout)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: FamilyConfig, place: Place, style: LayerStyle) -> None:
        super().__init__()
        self.place = place
        shortcut, weight_dropout = config.shortcut(place), SharedDropout(config.attention_dropout)
        self.reads_raw = style.emelin_compatible and shortcut is not None
        self.attention = SelfAttention(
            config.embed_dim, config.num_heads, weight_dropout, bias=config.attention_bias, shortcut=shortcut
        )
        self.attention_residual = Residual(config.embed_dim, style.norm, config.dropout, self.reads_raw)
        hidden_dropout = SharedDropout(config.hidden_dropout)
        self.ffn = FeedForward(config.embed_dim, config.ffn_dim, hidden_dropout, style.emelin_compatible)
        self.ffn_residual = Residual(config.embed_dim, style.norm, config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B S E"],
        mask: AttentionMask,
        embedded: Float[Tensor, "B S E"],
        attn_weights: AttentionMaps | None = None,
    ) -> Float[Tensor, "B S E"]:
        """One layer; `embedded` is the lexical input, used by shortcuts only."""
        record = record_at(attn_weights, self.place)
        lexical = lexical_summands(self.attention.shortcut, embedded)
        x, y = self.attention_residual.read(x)
        update = self.attention(y, mask, None, lexical, record, x if self.reads_raw else None)
        x, y = self.attention_residual.add(x, y, update, self.ffn_residual)
        return self.ffn_residual.add_last(x, self.ffn(y))


class Encoder(nn.Module):
    """A stack of encoder layers; with pre-norm, a final layer norm."""

    def __init__(self, config: FamilyConfig, num_layers: int, place: Place, style: LayerStyle = PRE_NORM) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(EncoderLayer(config, place, style) for _ in range(num_layers))
        self.norm = LayerNorm(config.embed_dim) if style.norm == "pre" else nn.Identity()

    def forward(
        self, embedded: Float[Tensor, "B S E"], mask: Bool[Tensor, "B S"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B S E"]:
        """Encode; `mask` is True at real tokens."""
        x, lexical = embedded, embedded
        padding = AttentionMask.padding(mask, embedded, axes=2)
        for layer in self.layers:
            below = x if self.config.reads_two_below else embedded
            x, lexical = checkpointed(layer, self.config, x, padding, lexical, attn_weights), below
        return self.norm(x)


@dataclass(frozen=True)
class DecoderMasks:
    """Attention masks of a decoder layer."""

    own: AttentionMask
    """Causal mask of self-attention, for weights `[B, H, T, T]`."""
    source: AttentionMask
    """Padding mask of cross-attention, for weights `[B, H, T, S]`."""


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, and feed-forward."""

    def __init__(self, config: FamilyConfig, style: LayerStyle) -> None:
        super().__init__()
        embed_dim, heads, bias = config.embed_dim, config.num_heads, config.attention_bias
        own, cross = config.shortcut("decoder"), config.shortcut("cross")
        self.reads_raw = style.emelin_compatible and own is not None
        weight_dropout = SharedDropout(config.attention_dropout)
        self.self_attention = SelfAttention(embed_dim, heads, weight_dropout, bias=bias, shortcut=own)
        self.self_residual = Residual(embed_dim, style.norm, config.dropout, self.reads_raw)
        self.cross_attention = CrossAttention(embed_dim, heads, weight_dropout, bias, cross)
        adds_normed = style.emelin_compatible and cross is not None
        self.cross_residual = Residual(embed_dim, style.norm, config.dropout, adds_normed)
        self.ffn = FeedForward(embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout), style.emelin_compatible)
        self.ffn_residual = Residual(embed_dim, style.norm, config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        embedded: Float[Tensor, "B T E"],
        projected_source: Float[Tensor, "B S EE"],
        masks: DecoderMasks,
        cache: KeyValueCache | None = None,
        attn_weights: AttentionMaps | None = None,
    ) -> Float[Tensor, "B T E"]:
        """One layer; with a `cache`, T runs over the rows of each sentence (see `SelfAttention`).

        `embedded` is the lexical input of self-attention, used by shortcuts only.
        """
        of_own, of_cross = record_at(attn_weights, "decoder"), record_at(attn_weights, "cross")
        lexical = lexical_summands(self.self_attention.shortcut, embedded)
        x, y = self.self_residual.read(x)
        update = self.self_attention(y, masks.own, cache, lexical, of_own, x if self.reads_raw else None)
        x, y = self.self_residual.add(x, y, update, self.cross_residual)
        update = self.cross_attention(y, projected_source, masks.source, of_cross)
        x, y = self.cross_residual.add(x, y, update, self.ffn_residual)
        return self.ffn_residual.add_last(x, self.ffn(y))

    def project(
        self, memory: Float[Tensor, "B S E"], embedded: Float[Tensor, "B S E"], attn_weights: AttentionMaps | None
    ) -> Float[Tensor, "B S EE"]:
        """Keys, then values, from the encoder's output; `embedded` is the encoder's input, for shortcuts."""
        lexical = lexical_summands(self.cross_attention.shortcut, embedded)
        return self.cross_attention.project(memory, lexical, record_at(attn_weights, "cross"))


DecoderCache = CachedState[tuple[Tensor, ...]]
"""Decoder state that keeps, for each decoder layer, keys and values of the encoder's output."""


class Transformer(CachedModel):
    """Encoder and decoder, with or without lexical shortcuts."""

    config: TransformerConfig
    capturable = True
    layer_methods = ("project",)

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        style = LayerStyle(config.norm, config.emelin_compatible)
        tables = embedding_tables(config, source_vocabulary, target_vocabulary)
        self.source_embedding, self.target_embedding, self.output = tables
        self.second_dropout = SharedDropout(self.target_embedding.dropout.rate if config.emelin_compatible else 0.0)
        """Second dropout of the decoder's input, as in the code of Emelin et al. 2019."""
        self.encoder = Encoder(config, config.encoder_layers, "encoder", style)
        self.layers = nn.ModuleList(DecoderLayer(config, style) for _ in range(config.decoder_layers))
        self.norm = LayerNorm(config.embed_dim) if config.norm == "pre" else nn.Identity()

    def stacks(self) -> Mapping[str, LayerStack]:
        return {
            "encoder": LayerStack(list(self.encoder.layers), self.encoder.norm),
            "decoder": LayerStack(list(self.layers), self.norm),
        }

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        projected = self._project_source(source, attn_weights)
        x = self.second_dropout(self.target_embedding(target_input))
        masks = DecoderMasks(
            own=AttentionMask.causal(x.shape[1], x), source=AttentionMask.padding(source != pad_id, x, axes=2)
        )
        logits = self._decode(x, projected, masks, [None] * len(self.layers), attn_weights)
        if attn_weights is not None and attn_weights.wants_alignment:
            means = [weights.float().mean(dim=1) for weights in attn_weights.cross[-len(self.layers) :]]
            attn_weights.alignment = torch.stack(means).mean(dim=0)
        return logits

    def start(self, source: Int[Tensor, "B S"]) -> DecoderCache:
        return CachedState(len(self.layers), source != pad_id, self._project_source(source))

    def newest(self, embedded: Float[Tensor, "G R E"], state: DecoderCache) -> Float[Tensor, "G R V"]:
        """Logits of the newest position of the R rows of each sentence."""
        masks = DecoderMasks(own=state.slots.mask(embedded, axes=1), source=state.source.mask(embedded, axes=2))
        return self._decode(embedded, state.source.constants, masks, state.caches)

    def _project_source(
        self, source: Int[Tensor, "B S"], attn_weights: AttentionMaps | None = None
    ) -> tuple[Float[Tensor, "B S EE"], ...]:
        """Keys, then values, of the encoder's output for each decoder layer."""
        embedded = self.source_embedding(source)
        memory = self.encoder(embedded, source != pad_id, attn_weights)
        return tuple(cast(DecoderLayer, layer).project(memory, embedded, attn_weights) for layer in self.layers)

    def _decode(
        self,
        embedded: Float[Tensor, "B T E"],
        projected_source: Sequence[Float[Tensor, "B S EE"]],
        masks: DecoderMasks,
        caches: Sequence[KeyValueCache | None],
        attn_weights: AttentionMaps | None = None,
    ) -> Float[Tensor, "B T V"]:
        x, lexical = embedded, embedded
        for layer, projected, cache in zip(self.layers, projected_source, caches, strict=True):
            below = x if self.config.reads_two_below else embedded
            x = checkpointed(layer, self.config, x, lexical, projected, masks, cache, attn_weights)
            lexical = below
        return self.output(self.norm(x))
