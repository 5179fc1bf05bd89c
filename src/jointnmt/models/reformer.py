"""The Reformers: translation by a joint representation, a grid of source-target token pairs.

Li et al. 2020, "Neural Machine Translation with Joint Representation". The grid is `[B, S, T, E]`: a vector, or cell,
for every pair of a source position s and a target position t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from jointnmt.models.common import MAX_LAYERS, FamilyConfig, Place, checkpointed, embedding_tables
from jointnmt.models.interface import AttentionMaps, LayerStack, record_at
from jointnmt.models.layers.attention import SelfAttention
from jointnmt.models.layers.cache import CachedModel, CachedState, KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.layers.reduction import Reduction, ReductionKind
from jointnmt.models.layers.shortcut import lexical_summands
from jointnmt.models.transformer import Encoder
from jointnmt.ops import AttentionMask, add_norm, dropout_add, grid_of_sides, normed
from jointnmt.text.special import pad_id

SOURCE_AXIS, TARGET_AXIS = 1, 2


class ReformerConfig(FamilyConfig):
    """Settings of both Reformers."""

    is_grid = True

    num_layers: int = Field(7, ge=1, le=MAX_LAYERS, description="grid layers, each of target and source attention")
    shared_dropout: bool = Field(True, description="Dropout1d and Dropout2d on the grid; false: ordinary dropout")
    reduction: ReductionKind = Field("attention", description="reduction of S vectors to one: attention, max or mean")

    def attention_depths(self) -> Mapping[Place, int]:
        """See `FamilyConfig`."""
        return {"source": self.num_layers, "target": self.num_layers}


class ReformerBaseConfig(ReformerConfig):
    """Reformer-base: the grid is made of source and target embeddings."""

    family: Literal["reformer-base"] = "reformer-base"


class ReformerFastConfig(ReformerConfig):
    """Reformer-fast: an encoder of the source, the PreNet, precedes the grid."""

    family: Literal["reformer-fast"] = "reformer-fast"
    num_layers: int = Field(5, ge=1, le=MAX_LAYERS, description="grid layers, each of target and source attention")
    prenet_layers: int = Field(
        5, ge=1, le=MAX_LAYERS, description="layers of the PreNet; in the paper, as many as grid layers"
    )

    def attention_depths(self) -> Mapping[Place, int]:
        """See `FamilyConfig`."""
        return {"prenet": self.prenet_layers, **super().attention_depths()}


@dataclass(frozen=True)
class GridMasks:
    """Attention masks of both axes."""

    source: AttentionMask
    """Padding mask of the source, for weights `[B, T, H, S, S]`."""
    target: AttentionMask
    """Causal mask of the target, for weights `[B, S, H, T, T]`; hides padding too, which comes after all tokens."""


class GridLexical(NamedTuple):
    """The lexical input of a layer's two attentions, projected by their shortcuts.

    The lexical input is the input of the grid, `x_s + y_t` (Eq. 4). Its projection is a sum as well, so each side is
    projected separately, S + T vectors instead of S * T: source `[B, S, 1, F]`, target `[B, 1, T, F]`.
    """

    target: tuple[Tensor, ...] = ()
    """Summands for target attention; empty without a shortcut."""
    source: tuple[Tensor, ...] = ()
    """Summands for source attention; empty without a shortcut."""

    def plus(self, other: GridLexical) -> GridLexical:
        """Sum of two sides: the summands of both."""
        return GridLexical(self.target + other.target, self.source + other.source)


class SourceSide(NamedTuple):
    """The source, encoded once for decoding."""

    side: Float[Tensor, "B S 1 E"]
    """Source side of the grid's input."""
    lexical: tuple[GridLexical, ...]
    """Its projections by the shortcuts of each layer."""


GridCache = CachedState[SourceSide]


class GridLayer(nn.Module):
    """Target attention, feed-forward, source attention, feed-forward; each `x + dropout(f(norm(x)))` (Eq. 1)."""

    def __init__(self, config: ReformerConfig) -> None:
        super().__init__()
        embed_dim, heads, bias = config.embed_dim, config.num_heads, config.attention_bias
        source, target = ((SOURCE_AXIS,), (TARGET_AXIS,)) if config.shared_dropout else ((), ())

        def feed_forward() -> FeedForward:
            return FeedForward(embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout, source + target))

        # Weights have the shape [B, kept axis, H, aggregated axis, aggregated axis]: the mask is shared along axis 1.
        weight_dropout = SharedDropout(config.attention_dropout, (1,) if config.shared_dropout else ())
        self.target_norm = LayerNorm(embed_dim)
        self.target_attention = SelfAttention(  # Eq. 5
            embed_dim, heads, weight_dropout, TARGET_AXIS, bias, config.shortcut("target")
        )
        self.target_dropout = SharedDropout(config.dropout, source)  # Dropout1d
        self.target_ffn_norm = LayerNorm(embed_dim)
        self.target_ffn = feed_forward()
        self.source_norm = LayerNorm(embed_dim)
        self.source_attention = SelfAttention(
            embed_dim, heads, weight_dropout, SOURCE_AXIS, bias, config.shortcut("source")
        )
        self.source_dropout = SharedDropout(config.dropout, target)  # Dropout1d
        self.source_ffn_norm = LayerNorm(embed_dim)
        self.source_ffn = feed_forward()
        self.ffn_dropout = SharedDropout(config.dropout, source + target)  # Dropout2d

    def forward(
        self,
        x: Float[Tensor, "B S T E"],
        masks: GridMasks,
        lexical: GridLexical,
        cache: KeyValueCache | None = None,
        attn_weights: AttentionMaps | None = None,
    ) -> Float[Tensor, "B S T E"]:
        """Refine the grid.

        Args:
            x: the grid; with a `cache`, T runs over the rows of each sentence (see `SelfAttention`).
            masks: attention masks of both axes.
            lexical: both sides of the grid's input, from `project_lexical`.
            cache: cache of target attention.
            attn_weights: if given, weights and gates are appended.
        """
        # Eq. 1 four times. `add_norm(x, update, dropout, norm)` fuses the end of a sub-layer with the beginning of the
        # next: `x = x + dropout(update); y = norm(x)`. `normed` is its second half, `dropout_add` the first.
        x, y = normed(x, self.target_norm)
        update = self.target_attention(y, masks.target, cache, lexical.target, record_at(attn_weights, "target"))
        x, y = add_norm(x, update, self.target_dropout, self.target_ffn_norm)
        x, y = add_norm(x, self.target_ffn(y), self.ffn_dropout, self.source_norm)
        update = self.source_attention(y, masks.source, None, lexical.source, record_at(attn_weights, "source"))
        x, y = add_norm(x, update, self.source_dropout, self.source_ffn_norm)
        return dropout_add(x, self.source_ffn(y), self.ffn_dropout)

    def project_lexical(self, side: Float[Tensor, "B *places E"]) -> GridLexical:
        """Projections of one side of the grid's input, `[B, S, 1, E]` or `[B, 1, T, E]`, by the shortcuts."""
        shortcuts = self.target_attention.shortcut, self.source_attention.shortcut
        return GridLexical(*(lexical_summands(shortcut, side) for shortcut in shortcuts))


class Reformer(CachedModel):
    """Reformer-base; with a PreNet, Reformer-fast."""

    config: ReformerBaseConfig | ReformerFastConfig
    capturable = True

    def __init__(
        self, config: ReformerBaseConfig | ReformerFastConfig, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        self.config = config
        tables = embedding_tables(config, source_vocabulary, target_vocabulary)
        self.source_embedding, self.target_embedding, self.output = tables
        self.prenet = (
            Encoder(config, config.prenet_layers, "prenet") if isinstance(config, ReformerFastConfig) else None
        )
        self.layers = nn.ModuleList(self.make_layer(index) for index in range(config.num_layers))
        self.reduction = Reduction(config.embed_dim, config.reduction)
        self.layer_methods = ("project_lexical",) if self.has_shortcuts else ()

    def make_layer(self, index: int) -> GridLayer:
        """The grid layer number `index`, from 0; variants of the family override it."""
        return GridLayer(self.config)

    def join(
        self, source_side: Float[Tensor, "B S 1 E"], target_side: Float[Tensor, "B 1 T E"]
    ) -> Float[Tensor, "B S T E"]:
        """The grid's input: the sum of both sides (Eq. 4); variants of the family override it.

        In search T runs over the rows of each sentence.
        """
        return grid_of_sides(source_side, target_side)

    def stacks(self) -> Mapping[str, LayerStack]:
        grid = {"grid": LayerStack(list(self.layers))}
        return (
            grid if self.prenet is None else {"prenet": LayerStack(list(self.prenet.layers), self.prenet.norm), **grid}
        )

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        mask = source != pad_id
        source_side = self.encode(source, attn_weights)[:, :, None]  # [B, S, 1, E]
        target_side = self.target_embedding(target_input)[:, None]  # [B, 1, T, E]
        x = self.join(source_side, target_side)
        masks = GridMasks(
            source=AttentionMask.padding(mask, x, axes=3), target=AttentionMask.causal(target_input.shape[1], x)
        )
        for layer in self._grid_layers():
            lexical = layer.project_lexical(source_side).plus(layer.project_lexical(target_side))
            x = checkpointed(layer, self.config, x, masks, lexical, None, attn_weights)
        alignments: list[Tensor] | None = [] if attn_weights is not None and attn_weights.wants_alignment else None
        logits = self.output(self.reduction(x, mask, alignments))  # Eq. 6
        if attn_weights is not None:
            attn_weights.alignment = alignments[0] if alignments else None
        return logits

    def encode(self, source: Int[Tensor, "B S"], attn_weights: AttentionMaps | None = None) -> Float[Tensor, "B S E"]:
        """The source side of the grid's input: embeddings, or the output of the PreNet over them."""
        embedded = self.source_embedding(source)
        return embedded if self.prenet is None else self.prenet(embedded, source != pad_id, attn_weights)

    def start(self, source: Int[Tensor, "B S"]) -> GridCache:
        side = self.encode(source)[:, :, None]
        lexical = tuple(layer.project_lexical(side) for layer in self._grid_layers())
        return CachedState(len(self.layers), source != pad_id, SourceSide(side, lexical), lines=source.shape[1:])

    def newest(self, embedded: Float[Tensor, "G R E"], state: GridCache) -> Float[Tensor, "G R V"]:
        """Logits of the newest column of the grid, `[G, S, R, E]` for R rows of each of G sentences."""
        source, target_side = state.source, embedded[:, None]
        x = self.join(source.constants.side, target_side)
        masks = GridMasks(source=source.mask(x, axes=3), target=state.slots.mask(x, axes=2))
        for layer, of_source, cache in zip(self._grid_layers(), source.constants.lexical, state.caches, strict=True):
            x = layer(x, masks, of_source.plus(layer.project_lexical(target_side)), cache)
        return self.output(self.reduction(x, source.real, lengths=source.lengths))

    def _grid_layers(self) -> Sequence[GridLayer]:
        return cast(Sequence[GridLayer], self.layers)
