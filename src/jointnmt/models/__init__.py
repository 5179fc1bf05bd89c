"""The model families, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, SerializeAsAny
from pydantic_core import PydanticKnownError

from jointnmt.errors import ConfigurationError
from jointnmt.models.checking import check_model
from jointnmt.models.common import FamilyConfig, ShortcutConfig, embedding_tables
from jointnmt.models.families import FAMILIES, Family, find_family
from jointnmt.models.interface import AttentionMaps, DecoderState, LayerStack, TranslationModel
from jointnmt.models.layers.cache import CachedModel, CachedState, KeyValueCache
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.linear import Linear
from jointnmt.models.reformer import (
    GridLayer,
    GridLexical,
    GridMasks,
    Reformer,
    ReformerBaseConfig,
    ReformerFastConfig,
)
from jointnmt.models.transformer import Transformer, TransformerConfig
from jointnmt.ops import AttentionMask

FAMILIES.update(
    {
        "transformer": Family(TransformerConfig, Transformer),
        "reformer-base": Family(ReformerBaseConfig, Reformer),
        "reformer-fast": Family(ReformerFastConfig, Reformer),
    }
)


def _of_its_family(values: Any) -> FamilyConfig:
    """`values` as the settings of the family that they name."""
    if type(values) is FamilyConfig:
        values = values.plain()
    if isinstance(values, FamilyConfig):
        return values
    if not isinstance(values, Mapping):
        raise PydanticKnownError("model_type", {"class_name": FamilyConfig.__name__})
    return FamilyConfig.variant(values).model_validate(values)


ModelConfig = Annotated[SerializeAsAny[FamilyConfig], PlainValidator(_of_its_family)]
"""Settings of a model of any family."""

__all__ = [
    "FAMILIES",
    "AttentionMaps",
    "AttentionMask",
    "CachedModel",
    "CachedState",
    "DecoderState",
    "Family",
    "FamilyConfig",
    "GridLayer",
    "GridLexical",
    "GridMasks",
    "KeyValueCache",
    "LayerStack",
    "Linear",
    "ModelConfig",
    "Reformer",
    "ReformerBaseConfig",
    "ReformerFastConfig",
    "SharedDropout",
    "ShortcutConfig",
    "Transformer",
    "TransformerConfig",
    "TranslationModel",
    "build_model",
    "check_model",
    "embedding_tables",
    "find_family",
]


def build_model(config: FamilyConfig, source_vocabulary: int, target_vocabulary: int) -> TranslationModel:
    """A model of the configured family with random initial weights, from torch's global generator.

    Raises:
        ConfigurationError: if the embeddings cannot be tied as configured, or there is no such family.
    """
    family = find_family(config.family)
    if family is None:
        raise ConfigurationError(f"There is no family {config.family!r}.")
    return family.model(config, source_vocabulary, target_vocabulary)
