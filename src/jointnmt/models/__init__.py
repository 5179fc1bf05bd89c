"""The model families, in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from jointnmt.models.common import ModelSettings
from jointnmt.models.interface import AttentionMaps, DecoderState, TranslationModel
from jointnmt.models.reformer import Reformer, ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import Transformer, TransformerConfig

ModelConfig = Annotated[TransformerConfig | ReformerBaseConfig | ReformerFastConfig, Field(discriminator="family")]

FAMILIES: dict[str, tuple[type[ModelSettings], Callable[..., TranslationModel]]] = {
    "transformer": (TransformerConfig, Transformer),
    "reformer-base": (ReformerBaseConfig, Reformer),
    "reformer-fast": (ReformerFastConfig, Reformer),
}

__all__ = ["FAMILIES", "AttentionMaps", "DecoderState", "ModelConfig", "TranslationModel", "build_model"]


def build_model(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> TranslationModel:
    """A model of the configured family with fresh weights, drawn from the global generator of torch.

    Raises:
        ConfigurationError: if the embeddings cannot be tied as configured.
    """
    _, model = FAMILIES[config.family]
    return model(config, source_vocabulary, target_vocabulary)
