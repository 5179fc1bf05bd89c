"""The Transformer (Vaswani et al. 2017): the baseline, and the encoder that Reformer-fast takes as its PreNet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Self, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from jointnmt.models.common import ModelSettings, Place, compute_type, embedding_tables, run_layer
from jointnmt.models.interface import AttentionMaps, DecoderState, TranslationModel
from jointnmt.models.layers.attention import CrossAttention, SelfAttention, Sight
from jointnmt.models.layers.cache import CachedState, KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.layers.residual import Stream, Update
from jointnmt.text.special import pad_id

NormPlace = Literal["pre", "post"]


class TransformerConfig(ModelSettings):
    """The Transformer baseline."""

    family: Literal["transformer"] = "transformer"
    encoder_layers: int = Field(6, ge=1, description="layers of the encoder")
    decoder_layers: int = Field(6, ge=1, description="layers of the decoder")
    norm: NormPlace = Field("pre", description="layer norm before each sub-layer, and one at the end; or after each")
    faithful: bool = Field(
        False, description="compute as the lexical shortcuts' authors' code does, where it departs from the paper"
    )

    def attention_depths(self) -> Mapping[Place, int]:
        """See `ModelSettings`."""
        return {"encoder": self.encoder_layers, "decoder": self.decoder_layers, "cross": self.decoder_layers}

    @model_validator(mode="after")
    def _faithful_is_pre_norm(self) -> Self:
        if self.faithful and self.norm == "post":
            raise ValueError("faithful true needs norm 'pre': the authors' code has no other")
        return self


class LayerStyle(NamedTuple):
    """What surrounds the sub-layers of encoder and decoder layers."""

    norm: NormPlace = "pre"
    faithful: bool = False
    """As in the authors' code of the lexical shortcuts: keys and values of a layer with shortcuts are made of the state
    before the norm, and the norm's output is what its residual connection adds; feed-forward blocks have their dropout
    on the input."""


PRE_NORM = LayerStyle()


class Residual(nn.Module):
    """What surrounds a sub-layer f.

    Pre-norm: `x + dropout(f(norm(x)))` (Li et al. 2020, Eq. 1). Post-norm: `norm(x + dropout(f(x)))` (Vaswani et al.
    2017, section 3.1). `adds_normed`: `norm(x) + dropout(f(norm(x)))`.
    """

    def __init__(self, embed_dim: int, norm: NormPlace, dropout: float, adds_normed: bool = False) -> None:
        super().__init__()
        self.norm = LayerNorm(embed_dim)
        self.norm_first = norm == "pre"
        self.adds_normed = adds_normed
        self.dropout = SharedDropout(dropout)

    def forward(self, stream: Stream, sub_layer: Callable[[Tensor], Update]) -> Stream:
        if not self.norm_first:
            stream.add(sub_layer(stream.value), self.dropout)
            return Stream(stream.normed(self.norm))
        normed = stream.normed(self.norm)
        if self.adds_normed:
            stream = Stream(normed)
        stream.add(sub_layer(normed), self.dropout)
        return stream


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelSettings, place: Place, style: LayerStyle) -> None:
        super().__init__()
        self.place = place
        shortcut, weight_dropout = config.shortcut(place), SharedDropout(config.attention_dropout)
        self.reads_raw = style.faithful and shortcut is not None
        self.attention = SelfAttention(
            config.embed_dim, config.num_heads, weight_dropout, bias=config.attention_bias, shortcut=shortcut
        )
        self.attention_residual = Residual(config.embed_dim, style.norm, config.dropout, self.reads_raw)
        self.ffn = FeedForward(config.embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout), style.faithful)
        self.ffn_residual = Residual(config.embed_dim, style.norm, config.dropout)

    def forward(
        self,
        stream: Stream,
        sight: Sight,
        embedded: Float[Tensor, "B S E"],
        maps: AttentionMaps | None = None,
    ) -> Stream:
        """One layer over `[B, S, E]`; `embedded` is the lexical input, if it has shortcuts."""
        weights, gates = (None, None) if maps is None else maps.at(self.place)
        shortcut = self.attention.shortcut
        lexical = None if shortcut is None else shortcut.of(embedded, stream.value if self.reads_raw else None, gates)
        stream = self.attention_residual(stream, lambda y: self.attention(y, sight, maps=weights, lexical=lexical))
        return self.ffn_residual(stream, self.ffn)


class Encoder(nn.Module):
    """A stack of encoder layers; pre-norm ends with a layer norm of its own."""

    def __init__(self, config: ModelSettings, num_layers: int, place: Place, style: LayerStyle = PRE_NORM) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(EncoderLayer(config, place, style) for _ in range(num_layers))
        self.norm = LayerNorm(config.embed_dim) if style.norm == "pre" else nn.Identity()

    def forward(
        self, embedded: Float[Tensor, "B S E"], mask: Bool[Tensor, "B S"], maps: AttentionMaps | None = None
    ) -> Float[Tensor, "B S E"]:
        """Encode; `mask` is True at real tokens."""
        stream, lexical = Stream(embedded), embedded
        sight = Sight.of_tokens(mask, embedded, axes=2)
        for layer in self.layers:
            below = stream.value if self.config.reads_two_below else embedded
            stream, lexical = run_layer(layer, self.config, stream, sight, lexical, maps), below
        return self.norm(stream.value)


@dataclass(frozen=True)
class DecoderSight:
    """What a decoder layer may look at."""

    own: Sight
    """For `[B, H, T, T]`: the future is masked."""
    source: Sight
    """For `[B, H, T, S]`: padding is masked."""


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, and feed-forward."""

    def __init__(self, config: ModelSettings, style: LayerStyle) -> None:
        super().__init__()
        embed_dim, heads, bias = config.embed_dim, config.num_heads, config.attention_bias
        own, cross = config.shortcut("decoder"), config.shortcut("cross")
        self.reads_raw = style.faithful and own is not None
        weight_dropout = SharedDropout(config.attention_dropout)
        self.self_attention = SelfAttention(embed_dim, heads, weight_dropout, bias=bias, shortcut=own)
        self.self_residual = Residual(embed_dim, style.norm, config.dropout, self.reads_raw)
        self.cross_attention = CrossAttention(embed_dim, heads, config.attention_dropout, bias, cross)
        self.cross_residual = Residual(embed_dim, style.norm, config.dropout, style.faithful and cross is not None)
        self.ffn = FeedForward(embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout), style.faithful)
        self.ffn_residual = Residual(embed_dim, style.norm, config.dropout)

    def forward(
        self,
        stream: Stream,
        embedded: Float[Tensor, "B T E"],
        projected_source: Float[Tensor, "B S EE"],
        sight: DecoderSight,
        cache: KeyValueCache | None = None,
        maps: AttentionMaps | None = None,
    ) -> Stream:
        """One layer over `[B, T, E]`; with a `cache`, T runs over the rows of each sentence (see `SelfAttention`).

        `embedded` is the lexical input of self-attention, if it has shortcuts.
        """
        weights, gates = (None, None) if maps is None else maps.at("decoder")
        cross_weights = None if maps is None else maps.cross
        shortcut = self.self_attention.shortcut
        lexical = None if shortcut is None else shortcut.of(embedded, stream.value if self.reads_raw else None, gates)
        stream = self.self_residual(stream, lambda y: self.self_attention(y, sight.own, cache, weights, lexical))
        stream = self.cross_residual(
            stream, lambda y: self.cross_attention(y, projected_source, sight.source, cross_weights)
        )
        return self.ffn_residual(stream, self.ffn)

    def project(
        self, memory: Float[Tensor, "B S E"], embedded: Float[Tensor, "B S E"], maps: AttentionMaps | None
    ) -> Float[Tensor, "B S EE"]:
        """Keys and values of the encoder's output; `embedded` is its input, for shortcuts."""
        shortcut = self.cross_attention.shortcut
        gates = None if maps is None else maps.at("cross")[1]
        lexical = None if shortcut is None else shortcut.of(embedded, gates=gates)
        return self.cross_attention.project(memory, lexical)


class Transformer(TranslationModel):
    """Encoder and decoder, with or without lexical shortcuts."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        style = LayerStyle(config.norm, config.faithful)
        tables = embedding_tables(config, source_vocabulary, target_vocabulary)
        self.source_embedding, self.target_embedding, self.output = tables
        self.second_dropout = nn.Dropout(self.target_embedding.dropout.p if config.faithful else 0.0)
        """Of the decoder's input, for the second time, as in the authors' code."""
        self.encoder = Encoder(config, config.encoder_layers, "encoder", style)
        self.layers = nn.ModuleList(DecoderLayer(config, style) for _ in range(config.decoder_layers))
        self.norm = LayerNorm(config.embed_dim) if config.norm == "pre" else nn.Identity()

    @property
    def has_shortcuts(self) -> bool:
        return bool(self.config.shortcut_places)

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], maps: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        projected = self._project_source(source, maps)
        x = self.second_dropout(compute_type(self.target_embedding(target_input)))
        sight = DecoderSight(Sight.of_past(x.shape[1], x), Sight.of_tokens(source != pad_id, x, axes=2))
        return self._decode(x, projected, sight, [None] * len(self.layers), maps)

    def start(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None = None) -> CachedState:
        projected = self._project_source(source, maps)
        constants = {f"projected_{i}": tensor for i, tensor in enumerate(projected)}
        return CachedState(len(self.layers), source != pad_id, constants)

    def step(
        self, last_ids: Int[Tensor, " N"], state: DecoderState, maps: AttentionMaps | None = None
    ) -> tuple[Float[Tensor, "N V"], CachedState]:
        assert isinstance(state, CachedState)
        state.advance()
        x = compute_type(self.target_embedding(last_ids[:, None], start=state.position))
        x = x.view(state.num_sentences, state.rows_per_sentence, -1)  # [N, 1, E] -> [G, R, E]
        if maps is None:
            return state.compute(partial(self._newest, state=state), x).flatten(0, 1), state
        logits = self._newest(x, state, maps)
        maps.decoder = [state.by_position(weights) for weights in maps.decoder]
        maps.cross = [weights.transpose(1, 2).flatten(0, 1).unsqueeze(2) for weights in maps.cross]
        maps.alignment = None if maps.alignment is None else maps.alignment.flatten(0, 1).unsqueeze(1)
        maps.gates["decoder"] = [gates.flatten(0, 1).unsqueeze(1) for gates in maps.gates["decoder"]]
        return logits.flatten(0, 1), state

    def _newest(
        self, embedded: Float[Tensor, "G R E"], state: CachedState, maps: AttentionMaps | None = None
    ) -> Float[Tensor, "G R V"]:
        """Logits of the newest position of the R rows of each sentence."""
        own, source = (
            Sight(state.slot_bias(embedded.dtype)[:, None], slots=state.slots),
            Sight.of_tokens(state.constants["mask"], embedded, axes=2),
        )
        projected = [state.constants[f"projected_{i}"] for i in range(len(self.layers))]
        return self._decode(embedded, projected, DecoderSight(own, source), state.caches, maps)

    def _project_source(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None) -> list[Float[Tensor, "B S EE"]]:
        """The keys and values that each decoder layer makes of the encoder's output."""
        embedded = compute_type(self.source_embedding(source))
        memory = self.encoder(embedded, source != pad_id, maps)
        return [cast(DecoderLayer, layer).project(memory, embedded, maps) for layer in self.layers]

    def _decode(
        self,
        embedded: Float[Tensor, "B T E"],
        projected_source: Sequence[Float[Tensor, "B S EE"]],
        sight: DecoderSight,
        caches: Sequence[KeyValueCache | None],
        maps: AttentionMaps | None,
    ) -> Float[Tensor, "B T V"]:
        stream, lexical = Stream(embedded), embedded
        for layer, projected, cache in zip(self.layers, projected_source, caches, strict=True):
            below = stream.value if self.config.reads_two_below else embedded
            stream = run_layer(layer, self.config, stream, lexical, projected, sight, cache, maps)
            lexical = below
        if maps is not None:
            maps.alignment = torch.stack([weights.float().mean(dim=1) for weights in maps.cross]).mean(dim=0)
        return self.output(self.norm(stream.value))
