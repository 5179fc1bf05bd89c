"""The Reformers: translation by a joint representation, a grid of source-target token pairs.

Li et al. 2020, "Neural Machine Translation with Joint Representation". `[B, S, T, E]` is the grid: for every source
position s and target position t a vector of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from jointnmt.models.common import ModelSettings, compute_type, embedding_tables, run_layer
from jointnmt.models.interface import AttentionMaps, DecoderState, TranslationModel
from jointnmt.models.layers.attention import SelfAttention, causal_bias, mask_bias
from jointnmt.models.layers.cache import CachedState, KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.reduction import Reduction, ReductionKind
from jointnmt.models.transformer import Encoder
from jointnmt.text.special import pad_id

SOURCE_AXIS, TARGET_AXIS = 1, 2


class ReformerSettings(ModelSettings):
    """What the Reformers have in common."""

    num_layers: int = Field(7, ge=1, description="grid layers, each of target and source attention")
    shared_dropout: bool = Field(True, description="Dropout1d and Dropout2d on the grid; false: ordinary dropout")
    reduction: ReductionKind = Field("attention", description="how S vectors become one: attention, max or mean")


class ReformerBaseConfig(ReformerSettings):
    """Reformer-base: source and target embeddings meet in the grid."""

    family: Literal["reformer-base"] = "reformer-base"


class ReformerFastConfig(ReformerSettings):
    """Reformer-fast: an encoder of the source, the PreNet, before the grid."""

    family: Literal["reformer-fast"] = "reformer-fast"
    num_layers: int = Field(5, ge=1, description="grid layers, each of target and source attention")
    prenet_layers: int = Field(5, ge=1, description="layers of the PreNet; the paper: as many as grid layers")


@dataclass(frozen=True)
class GridBiases:
    """Where the attention of both axes may look: 0 there, minus infinity elsewhere."""

    source: Float[Tensor, ...]
    """Broadcast to `[B, T, H, S, S]`: padding of the source is masked."""
    target: Float[Tensor, ...]
    """Broadcast to `[B, S, H, T, T]`: the future is masked. Padding needs no mask, for it only comes after."""


class GridLayer(nn.Module):
    """Target attention, feed-forward, source attention, feed-forward; each `x + dropout(f(norm(x)))`."""

    def __init__(self, config: ReformerSettings) -> None:
        super().__init__()
        embed_dim = config.embed_dim
        source, target = ((SOURCE_AXIS,), (TARGET_AXIS,)) if config.shared_dropout else ((), ())

        def feed_forward() -> FeedForward:
            return FeedForward(embed_dim, config.ffn_dim, SharedDropout(config.hidden_dropout, source + target))

        # Weights have the shape [B, kept axis, H, aggregated axis, aggregated axis]: noise is shared along axis 1.
        weight_dropout = SharedDropout(config.attention_dropout, (1,) if config.shared_dropout else ())
        self.target_norm = nn.LayerNorm(embed_dim)
        self.target_attention = SelfAttention(embed_dim, config.num_heads, weight_dropout, TARGET_AXIS)  # Eq. 5
        self.target_dropout = SharedDropout(config.dropout, source)  # Dropout1d
        self.target_ffn_norm = nn.LayerNorm(embed_dim)
        self.target_ffn = feed_forward()
        self.source_norm = nn.LayerNorm(embed_dim)
        self.source_attention = SelfAttention(embed_dim, config.num_heads, weight_dropout, SOURCE_AXIS)
        self.source_dropout = SharedDropout(config.dropout, target)  # Dropout1d
        self.source_ffn_norm = nn.LayerNorm(embed_dim)
        self.source_ffn = feed_forward()
        self.ffn_dropout = SharedDropout(config.dropout, source + target)  # Dropout2d

    def forward(
        self,
        grid: Float[Tensor, "B S T E"],
        biases: GridBiases,
        cache: KeyValueCache | None = None,
        maps: AttentionMaps | None = None,
    ) -> Float[Tensor, "B S T E"]:
        """Refine the grid; see `SelfAttention` for what it is with a `cache`."""
        target_maps = None if maps is None else maps.target
        source_maps = None if maps is None else maps.source
        attended = self.target_attention(self.target_norm(grid), biases.target, cache, target_maps)
        grid = self.target_dropout.add(grid, attended)
        grid = self.ffn_dropout.add(grid, self.target_ffn(self.target_ffn_norm(grid)))
        attended = self.source_attention(self.source_norm(grid), biases.source, maps=source_maps)
        grid = self.source_dropout.add(grid, attended)
        return self.ffn_dropout.add(grid, self.source_ffn(self.source_ffn_norm(grid)))


class Reformer(TranslationModel):
    """Reformer-base, or with a PreNet Reformer-fast."""

    def __init__(
        self, config: ReformerBaseConfig | ReformerFastConfig, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        self.config = config
        tables = embedding_tables(config, source_vocabulary, target_vocabulary)
        self.source_embedding, self.target_embedding, self.output = tables
        self.prenet = Encoder(config, config.prenet_layers) if isinstance(config, ReformerFastConfig) else None
        self.layers = nn.ModuleList(GridLayer(config) for _ in range(config.num_layers))
        self.reduction = Reduction(config.embed_dim, config.reduction)

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], maps: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        source_side = self.encode(source, maps)
        target_side = compute_type(self.target_embedding(target_input))
        grid = source_side[:, :, None] + target_side[:, None]  # Eq. 4: [B, S, 1, E] + [B, 1, T, E]
        biases = GridBiases(
            source=mask_bias(source != pad_id, grid)[:, None, None, None, :],
            target=causal_bias(target_input.shape[1], grid),
        )
        for layer in self.layers:
            grid = run_layer(layer, self.config, grid, biases, None, maps)
        logits = self._predict(grid, source, maps)
        if maps is not None:  # [B, kept axis, H, ...] -> [B, H, kept axis, ...]
            maps.target = [weights.transpose(1, 2) for weights in maps.target]
            maps.source = [weights.transpose(1, 2) for weights in maps.source]
        return logits

    def encode(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None = None) -> Float[Tensor, "B S E"]:
        """The source side of the grid's input: embeddings, or what the PreNet makes of them."""
        embedded = compute_type(self.source_embedding(source))
        if self.prenet is None:
            return embedded
        return self.prenet(embedded, source != pad_id, None if maps is None else maps.prenet)

    def start(self, source: Int[Tensor, "B S"], maps: AttentionMaps | None = None) -> CachedState:
        return CachedState(len(self.layers), {"source": source.clone(), "side": self.encode(source, maps)})

    def step(
        self, last_ids: Int[Tensor, " N"], state: DecoderState, maps: AttentionMaps | None = None
    ) -> tuple[Float[Tensor, "N V"], CachedState]:
        """Compute the newest column only: `[G, S, R, E]`, the R rows of each of G sentences side by side."""
        assert isinstance(state, CachedState)
        state.advance()
        source, side = state.constants["source"], state.constants["side"]
        target_side = compute_type(self.target_embedding(last_ids[:, None], start=state.position))
        target_side = target_side.view(state.num_sentences, 1, state.rows_per_sentence, -1)
        grid = side[:, :, None] + target_side
        biases = GridBiases(
            source=mask_bias(source != pad_id, grid)[:, None, None, None, :],
            target=state.slot_bias(grid.dtype)[:, None, None],
        )
        for layer, cache in zip(self.layers, state.caches, strict=True):
            grid = layer(grid, biases, cache, maps)
        logits = self._predict(grid, source, maps)
        if maps is not None:
            # [G, S, H, R, L] -> [N, H, S, 1, J]; [G, R, H, S, S] -> [N, H, 1, S, S]; [G, R, S] -> [N, 1, S]
            maps.target = [state.by_position(weights).transpose(1, 2) for weights in maps.target]
            maps.source = [weights.flatten(0, 1).unsqueeze(2) for weights in maps.source]
            maps.alignment = None if maps.alignment is None else maps.alignment.flatten(0, 1).unsqueeze(1)
        return logits.flatten(0, 1), state

    def _predict(
        self, grid: Float[Tensor, "B S T E"], source: Int[Tensor, "B S"], maps: AttentionMaps | None
    ) -> Float[Tensor, "B T V"]:
        hidden, alignment = self.reduction(grid, source != pad_id, wants_alignment=maps is not None)
        if maps is not None:
            maps.alignment = alignment
        return self.output(hidden)
