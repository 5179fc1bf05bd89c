"""Parts common to all families: sizes and rates, lexical shortcuts, and the embedding tables with their tying."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticKnownError
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jointnmt.bounded_yaml import shorten
from jointnmt.config import Config
from jointnmt.errors import ConfigurationError
from jointnmt.models.families import find_family, known_families
from jointnmt.models.interface import AttentionMaps
from jointnmt.models.layers.embedding import TokenEmbedding, VocabularyProjection, token_table
from jointnmt.models.layers.shortcut import Shortcut, ShortcutKind

Place = Literal["encoder", "decoder", "cross", "prenet", "source", "target"]
"""Place of an attention layer: self-attention of encoder, decoder or PreNet, cross-attention to the encoder's output,
or attention along the source or the target axis of the grid."""


class ShortcutConfig(Config):
    """Lexical shortcuts (Emelin et al. 2019): gates mix the embeddings into keys and values."""

    kind: ShortcutKind = Field("plain", description="plain gated shortcuts, or with feature fusion")
    places: tuple[Place, ...] | None = Field(
        None, min_length=1, description="attention layers with shortcuts; null: every self-attention of the model"
    )
    input: Literal["embedding", "two-below"] = Field(
        "embedding", description="mixed input: the embeddings, or the output of the layer two below (non-lexical)"
    )

    @model_validator(mode="after")
    def _each_place_once(self) -> Self:
        if self.places is not None and len(set(self.places)) < len(self.places):
            raise ValueError(f"places has duplicates: {', '.join(self.places)}")
        return self


MAX_LAYERS = 500
"""Most layers of a stack. The deepest published models have about as many; more is a mistake, or a memory attack."""


class FamilyConfig(Config):
    """Settings common to all families: sizes and dropout rates."""

    is_grid: ClassVar[bool] = False
    """Whether the model computes a grid: memory then grows with the number of cells, otherwise of tokens."""

    embed_dim: int = Field(256, ge=2, le=65_536, description="E: features of a token, a position, a cell")
    num_heads: int = Field(4, ge=1, le=4096, description="H: heads of every attention layer; divides embed_dim")
    ffn_dim: int = Field(1024, ge=1, le=1_000_000, description="F: hidden features of a feed-forward block")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of embeddings and of every sub-layer's output")
    embedding_dropout: float | None = Field(None, ge=0, lt=1, description="dropout of embeddings; null: as dropout")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    hidden_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the hidden layer of feed-forward blocks")
    embeddings: Literal["separate", "target", "all"] = Field(
        "separate",
        description="tying: none; target input and output; source, target and output (joint vocabulary)",
    )
    max_length: int | None = Field(
        None, ge=1, le=1_000_000, description="longest sentence in pieces, end mark included; null: no limit"
    )
    attention_bias: bool = Field(True, description="whether the projections of attention layers have biases")
    shortcuts: ShortcutConfig | None = Field(None, description="lexical shortcuts; null: none")
    activation_checkpointing: bool = Field(False, description="recompute layers in the backward pass: less memory")
    family: str = Field(description="model architecture")

    @classmethod
    def variant(cls, values: Mapping[str, Any]) -> type[FamilyConfig]:
        """Class of settings of the family that `values` name."""
        if cls is not FamilyConfig:
            return cls
        name = values.get("family")
        if name is None:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'family'"})
        if not isinstance(name, str) or (family := find_family(name)) is None:
            known = f"{', '.join(map(repr, known_families()))}; families of other packages need these installed"
            context = {"discriminator": "'family'", "tag": shorten(str(name), 80), "expected_tags": known}
            raise PydanticKnownError("union_tag_invalid", context)
        return family.config

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        return self

    @model_validator(mode="after")
    def _shortcuts_fit(self) -> Self:
        depths = self.attention_depths()
        if self.shortcuts is not None and not depths:
            raise ValueError("shortcuts: this family does not support them")
        for place in self.shortcut_places:
            if place not in depths:
                raise ValueError(
                    f"shortcuts.places names {place!r}, which this family does not have; its attention layers are: "
                    f"{', '.join(depths)}"
                )
            if self.reads_two_below:
                _check_two_below(place, depths[place])
        return self

    def dropout_rates(self) -> dict[str, float]:
        """All dropout rates that are set, by key."""
        return {key: value for key, value in self if key.endswith("dropout") and isinstance(value, float)}

    def attention_depths(self) -> Mapping[Place, int]:
        """Places of the model's attention layers, with the number of layers at each."""
        return {}

    @property
    def default_loss_mean(self) -> Literal["tokens", "sentences"]:
        """Default of `training.loss_mean`."""
        return "tokens"

    @property
    def shortcut_places(self) -> tuple[Place, ...]:
        """Places of the attention layers with shortcuts."""
        if self.shortcuts is None:
            return ()
        return self.shortcuts.places or tuple(place for place in self.attention_depths() if place != "cross")

    @property
    def reads_two_below(self) -> bool:
        """Whether a layer's lexical input is the output of the layer two below."""
        return self.shortcuts is not None and self.shortcuts.input == "two-below"

    def shortcut(self, place: Place) -> Shortcut | None:
        """A new shortcut for an attention layer at `place`, or None if there are none at this place."""
        if self.shortcuts is None or place not in self.shortcut_places:
            return None
        return Shortcut(self.embed_dim, self.shortcuts.kind)


def _check_two_below(place: Place, depth: int) -> None:
    """Check that shortcuts from two layers below are possible at `place`.

    Raises:
        ValueError: with the reason if they are not.
    """
    if place in ("source", "target"):
        reason = "a grid in the middle of the model is not a sum of a source and a target side"
    elif place == "cross":
        reason = "its hidden input is the encoder's output, and its lexical input the source embeddings"
    elif depth < 2:
        reason = "with a single layer there is no layer two below, only the embeddings"
    else:
        return
    raise ValueError(f"shortcuts.input 'two-below' is impossible at {place!r}: {reason}")


def embedding_tables(
    config: FamilyConfig, source_vocabulary: int, target_vocabulary: int
) -> tuple[TokenEmbedding, TokenEmbedding, VocabularyProjection]:
    """Source embedding, target embedding and the projection to the target vocabulary, tied as configured.

    Raises:
        ConfigurationError: if all tables are to be tied and the vocabularies differ in size.
    """
    if config.embeddings == "all" and source_vocabulary != target_vocabulary:
        raise ConfigurationError(
            f"model.embeddings is 'all', but the vocabularies differ ({source_vocabulary} and {target_vocabulary} "
            "pieces). Use a joint vocabulary, or model.embeddings 'target' or 'separate'."
        )
    dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    source = TokenEmbedding(source_vocabulary, config.embed_dim, dropout)
    target = TokenEmbedding(target_vocabulary, config.embed_dim, dropout)
    if config.embeddings == "all":
        target.weight = source.weight
    separate = config.embeddings == "separate"
    table = token_table(target_vocabulary, config.embed_dim) if separate else target.weight
    return source, target, VocabularyProjection(table)


def checkpointed(layer: nn.Module, config: FamilyConfig, x: Tensor, *arguments: Any) -> Tensor:
    """`layer(x, *arguments)`; with activation checkpointing, recomputed in the backward pass.

    Layers that record attention weights are not checkpointed: they would record them twice.
    """
    records = any(isinstance(argument, AttentionMaps) for argument in arguments)
    if config.activation_checkpointing and layer.training and torch.is_grad_enabled() and not records:
        return checkpoint(layer, x, *arguments, use_reentrant=False)
    return layer(x, *arguments)
