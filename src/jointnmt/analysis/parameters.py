"""Counting a model's parameters."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from jointnmt.models import ModelConfig
from jointnmt.models.layers.embedding import TokenEmbedding, VocabularyProjection
from jointnmt.models.outline import outline_model


@dataclass(frozen=True)
class Parameters:
    """Parameter counts of a model; a shared table counts once, in its first part."""

    embeddings: dict[str, int]
    """Counts of source and target embeddings, and of the projection to the vocabulary."""
    rest: dict[str, int]
    """Counts of the other parts, in the order of the model."""

    @property
    def total(self) -> int:
        """Number of all parameters."""
        return sum(self.embeddings.values()) + sum(self.rest.values())

    def plain(self) -> dict[str, Any]:
        """The counts as JSON-compatible values, with sums."""
        return {
            "total": self.total,
            "embeddings": sum(self.embeddings.values()),
            "rest": sum(self.rest.values()),
            "parts": asdict(self),
        }


def count_parameters(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> Parameters:
    """Parameter counts of each part of a model, which is built on the meta device.

    Raises:
        ConfigurationError: if the embeddings cannot be tied as configured.
    """
    model = outline_model(config, source_vocabulary, target_vocabulary)
    counts = Counter(dict.fromkeys((name for name, _ in model.named_children()), 0))
    for name, parameter in model.named_parameters():  # shared parameters appear once
        counts[name.partition(".")[0]] += parameter.numel()
    tables = {name for name, part in model.named_children() if isinstance(part, TokenEmbedding | VocabularyProjection)}
    embeddings = {name: count for name, count in counts.items() if name in tables}
    rest = {name: count for name, count in counts.items() if count and name not in tables}
    return Parameters(embeddings, rest)
