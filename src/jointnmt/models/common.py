"""What the families share: sizes and rates, and the three embedding tables with their tying."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jointnmt.config import Config
from jointnmt.errors import ConfigurationError
from jointnmt.models.layers.embedding import TokenEmbedding, VocabularyProjection, token_table


class ModelSettings(Config):
    """Sizes and rates of every family."""

    embed_dim: int = Field(256, ge=2, description="E: features of a token, a position, a cell")
    num_heads: int = Field(4, ge=1, description="H: heads of every attention layer; divides embed_dim")
    ffn_dim: int = Field(1024, ge=1, description="F: hidden features of a feed-forward block")
    dropout: float = Field(0.1, ge=0, lt=1, description="of embeddings and of every sub-layer's output")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="of attention weights")
    hidden_dropout: float = Field(0.0, ge=0, lt=1, description="of the hidden layer of feed-forward blocks")
    embeddings: Literal["separate", "target", "all"] = Field(
        "separate", description="tables: three; target input and output as one; all as one (joint vocabulary)"
    )
    max_length: int | None = Field(None, ge=1, description="longest sentence in pieces, end mark included; null: any")
    activation_checkpointing: bool = Field(False, description="recompute layers in the backward pass: less memory")

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        return self


def embedding_tables(
    config: ModelSettings, source_vocabulary: int, target_vocabulary: int
) -> tuple[TokenEmbedding, TokenEmbedding, VocabularyProjection]:
    """Source embedding, target embedding and the projection to the target vocabulary, tied as configured.

    Raises:
        ConfigurationError: if all tables are to be one and the vocabularies differ in size.
    """
    if config.embeddings == "all" and source_vocabulary != target_vocabulary:
        raise ConfigurationError(
            f"model.embeddings is 'all', but the vocabularies differ ({source_vocabulary} and {target_vocabulary} "
            "pieces). Use a joint vocabulary, or model.embeddings 'target' or 'separate'."
        )
    source = TokenEmbedding(source_vocabulary, config.embed_dim, config.dropout)
    target = TokenEmbedding(target_vocabulary, config.embed_dim, config.dropout)
    if config.embeddings == "all":
        target.weight = source.weight
    separate = config.embeddings == "separate"
    table = token_table(target_vocabulary, config.embed_dim) if separate else target.weight
    return source, target, VocabularyProjection(table)


def compute_type(x: Float[Tensor, ...]) -> Float[Tensor, ...]:
    """`x` in the type of mixed precision, where that is on: states are kept in it between layers too."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def run_layer(layer: nn.Module, config: ModelSettings, *arguments: Any) -> Tensor:
    """Apply a layer; with activation checkpointing, its activations are computed again in the backward pass."""
    if config.activation_checkpointing and layer.training and torch.is_grad_enabled():
        result: Tensor = checkpoint(layer, *arguments, use_reentrant=False)
        return result
    return layer(*arguments)
