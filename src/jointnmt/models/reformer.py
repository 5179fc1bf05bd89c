"""The Reformers: translation by a joint representation, a grid of source-target token pairs.

Li et al. 2020, "Neural Machine Translation with Joint Representation". `[B, S, T, E]` is the grid: for every source
position s and target position t a vector of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from jointnmt.models.common import ModelSettings, Place, compute_type, embedding_tables, run_layer
from jointnmt.models.interface import AttentionMaps, DecoderState, TranslationModel
from jointnmt.models.layers.attention import SelfAttention, Sight
from jointnmt.models.layers.cache import CachedState, KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.layers.reduction import Reduction, ReductionKind
from jointnmt.models.layers.residual import Stream
from jointnmt.models.layers.shortcut import Lexical
from jointnmt.models.transformer import Encoder
from jointnmt.text.special import pad_id

SOURCE_AXIS, TARGET_AXIS = 1, 2


class ReformerSettings(ModelSettings):
    """What the Reformers have in common."""

    num_layers: int = Field(7, ge=1, description="grid layers, each of target and source attention")
    shared_dropout: bool = Field(True, description="Dropout1d and Dropout2d on the grid; false: ordinary dropout")
    reduction: ReductionKind = Field("attention", description="how S vectors become one: attention, max or mean")

    def attention_depths(self) -> Mapping[Place, int]:
        """See `ModelSettings`."""
        return {"source": self.num_layers, "target": self.num_layers}


class ReformerBaseConfig(ReformerSettings):
    """Reformer-base: source and target embeddings meet in the grid."""

    family: Literal["reformer-base"] = "reformer-base"


class ReformerFastConfig(ReformerSettings):
    """Reformer-fast: an encoder of the source, the PreNet, before the grid."""

    family: Literal["reformer-fast"] = "reformer-fast"
    num_layers: int = Field(5, ge=1, description="grid layers, each of target and source attention")
    prenet_layers: int = Field(5, ge=1, description="layers of the PreNet; the paper: as many as grid layers")

    def attention_depths(self) -> Mapping[Place, int]:
        """See `ModelSettings`."""
        return {"prenet": self.prenet_layers, **super().attention_depths()}


@dataclass(frozen=True)
class GridSight:
    """What the attention of both axes may look at."""

    source: Sight
    """For `[B, T, H, S, S]`: padding of the source is masked."""
    target: Sight
    """For `[B, S, H, T, T]`: the future is masked. Padding needs no mask, for it only comes after."""


@dataclass(frozen=True)
class GridLexical:
    """One side of the grid's input (Eq. 4) as a layer's shortcuts project it; the grid's is the sum of both sides'."""

    target: Float[Tensor, ...] | None
    """For target attention: `[B, S, 1, F]` of the source side, `[B, 1, T, F]` of the target side; None: no shortcut."""
    source: Float[Tensor, ...] | None
    """For source attention, likewise."""


class GridLayer(nn.Module):
    """Target attention, feed-forward, source attention, feed-forward; each `x + dropout(f(norm(x)))`."""

    def __init__(self, config: ReformerSettings) -> None:
        super().__init__()
        embed_dim, heads, bias = config.embed_dim, config.num_heads, config.attention_bias
        source, target = ((SOURCE_AXIS,), (TARGET_AXIS,)) if config.shared_dropout else ((), ())

        def feed_forward() -> FeedForward:
            return FeedForward(embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout, source + target))

        # Weights have the shape [B, kept axis, H, aggregated axis, aggregated axis]: noise is shared along axis 1.
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
        grid: Stream,
        sides: tuple[GridLexical, GridLexical],
        sight: GridSight,
        cache: KeyValueCache | None = None,
        maps: AttentionMaps | None = None,
        sum_of: tuple[Float[Tensor, "B S E"], Float[Tensor, "B T E"]] | None = None,
    ) -> Stream:
        """Refine the grid `[B, S, T, E]`; see `SelfAttention` for what it is with a `cache`.

        `sides` are the source and the target side of the grid's input, as `project_lexical` has them; `sum_of`, without
        a `cache`, the sides themselves, if the grid still is their sum.
        """
        assert sum_of is None or cache is None
        weights, gates = (None, None) if maps is None else maps.at("target")
        lexical = _lexical((sides[0].target, sides[1].target), gates)
        update = None
        if sum_of is not None and maps is None:
            update = self.target_attention.of_sum(*sum_of, self.target_norm, sight.target)
        if update is None:
            normed = grid.normed(self.target_norm)
            update = self.target_attention(normed, sight.target, cache, weights, lexical)
        grid.add(update, self.target_dropout)
        grid.add(self.target_ffn(grid.normed(self.target_ffn_norm)), self.ffn_dropout)
        weights, gates = (None, None) if maps is None else maps.at("source")
        lexical = _lexical((sides[0].source, sides[1].source), gates)
        normed = grid.normed(self.source_norm)
        grid.add(self.source_attention(normed, sight.source, None, weights, lexical), self.source_dropout)
        grid.add(self.source_ffn(grid.normed(self.source_ffn_norm)), self.ffn_dropout)
        return grid

    def project_lexical(self, side: Float[Tensor, "B *places E"]) -> GridLexical:
        """What the shortcuts make of one side of the grid's input, `[B, S, 1, E]` or `[B, 1, T, E]`."""
        shortcuts = self.target_attention.shortcut, self.source_attention.shortcut
        return GridLexical(*(None if shortcut is None else shortcut.project(side) for shortcut in shortcuts))


def _lexical(sides: tuple[Tensor | None, Tensor | None], gates: list[Tensor] | None) -> Lexical | None:
    source, target = sides
    return None if source is None or target is None else Lexical((source, target), gates=gates)


class Reformer(TranslationModel):
    """Reformer-base, or with a PreNet Reformer-fast."""

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
        self.layers = nn.ModuleList(GridLayer(config) for _ in range(config.num_layers))
        self.reduction = Reduction(config.embed_dim, config.reduction)

    @property
    def has_shortcuts(self) -> bool:
        return bool(self.config.shortcut_places)

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], maps: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        source_side = self.encode(source, maps)[:, :, None]  # [B, S, 1, E]
        target_side = compute_type(self.target_embedding(target_input))[:, None]  # [B, 1, T, E]
        grid = Stream(source_side + target_side)  # Eq. 4
        sight = GridSight(
            source=Sight.of_tokens(source != pad_id, source_side, axes=3),
            target=Sight.of_past(target_input.shape[1], source_side),
        )
        for i, layer in enumerate(self._grid_layers()):
            sides = layer.project_lexical(source_side), layer.project_lexical(target_side)
            sum_of = (source_side.squeeze(2), target_side.squeeze(1)) if i == 0 else None
            grid = run_layer(layer, self.config, grid, sides, sight, None, maps, sum_of)
        logits = self._predict(grid, source != pad_id, maps)
        if maps is not None:  # [B, kept axis, H, ...] -> [B, H, kept axis, ...]
            maps.target = [weights.transpose(1, 2) for weights in maps.target]
            maps.source = [weights.transpose(1, 2) for weights in maps.source]
        return logits

    def encode(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None = None) -> Float[Tensor, "B S E"]:
        """The source side of the grid's input: embeddings, or what the PreNet makes of them."""
        embedded = compute_type(self.source_embedding(source))
        if self.prenet is None:
            return embedded
        return self.prenet(embedded, source != pad_id, maps)

    def start(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None = None) -> CachedState:
        side = self.encode(source, maps)[:, :, None]
        constants = {"side": side}
        for i, layer in enumerate(self._grid_layers()):
            projected = layer.project_lexical(side)
            constants |= {f"lexical_{axis}_{i}": part for axis, part in vars(projected).items() if part is not None}
        return CachedState(len(self.layers), source != pad_id, constants)

    def step(
        self, last_ids: Int[Tensor, " N"], state: DecoderState, maps: AttentionMaps | None = None
    ) -> tuple[Float[Tensor, "N V"], CachedState]:
        assert isinstance(state, CachedState)
        state.advance()
        target_side = compute_type(self.target_embedding(last_ids[:, None], start=state.position))
        target_side = target_side.view(state.num_sentences, state.rows_per_sentence, -1)
        if maps is None:
            return state.compute(partial(self._newest, state=state), target_side).flatten(0, 1), state
        logits = self._newest(target_side, state, maps)
        # [G, S, H, R, L] -> [N, H, S, 1, J]; [G, R, H, S, S] -> [N, H, 1, S, S]; [G, R, S] -> [N, 1, S]
        maps.target = [state.by_position(weights).transpose(1, 2) for weights in maps.target]
        maps.source = [weights.flatten(0, 1).unsqueeze(2) for weights in maps.source]
        maps.alignment = None if maps.alignment is None else maps.alignment.flatten(0, 1).unsqueeze(1)
        for axis in ("target", "source"):  # [G, S, R, 2, E] -> [N, S, 1, 2, E]
            columns = [gates.transpose(1, 2).flatten(0, 1).unsqueeze(2) for gates in maps.gates[axis]]
            maps.gates[axis] = columns
        return logits.flatten(0, 1), state

    def _newest(
        self, target_side: Float[Tensor, "G R E"], state: CachedState, maps: AttentionMaps | None = None
    ) -> Float[Tensor, "G R V"]:
        """Logits of the newest column: `[G, S, R, E]`, the R rows of each of G sentences side by side."""
        mask, source_side, target_side = state.constants["mask"], state.constants["side"], target_side[:, None]
        grid = Stream(source_side + target_side)
        sight = GridSight(
            source=Sight.of_tokens(mask, source_side, axes=3),
            target=Sight(state.slot_bias(source_side.dtype)[:, None, None], slots=state.slots),
        )
        for i, (layer, cache) in enumerate(zip(self._grid_layers(), state.caches, strict=True)):
            of_source = GridLexical(*(state.constants.get(f"lexical_{axis}_{i}") for axis in ("target", "source")))
            grid = layer(grid, (of_source, layer.project_lexical(target_side)), sight, cache, maps)
        return self._predict(grid, mask, maps)

    def _grid_layers(self) -> Sequence[GridLayer]:
        return cast(Sequence[GridLayer], self.layers)

    def _predict(self, grid: Stream, mask: Bool[Tensor, "B S"], maps: AttentionMaps | None) -> Float[Tensor, "B T V"]:
        hidden, alignment = self.reduction(grid, mask, wants_alignment=maps is not None)
        if maps is not None:
            maps.alignment = alignment
        return self.output(hidden)
