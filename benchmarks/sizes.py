"""The measured models: each family at the sizes of recipes, except for vocabularies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from jointnmt.config import Config
from jointnmt.models import FAMILIES, ModelConfig
from jointnmt.models.layers.shortcut import ShortcutKind


@dataclass(frozen=True)
class Size:
    """Settings of a size: common to all families, and of each."""

    vocabulary: int
    """Pieces on either side."""
    settings: dict[str, Any]
    depths: dict[str, dict[str, int]]
    """Settings of each family."""


SIZES = {
    "IWSLT": Size(
        10_000,
        {"embed_dim": 256, "ffn_dim": 1024, "num_heads": 4, "dropout": 0.3},
        {
            "transformer": {"encoder_layers": 6, "decoder_layers": 6},
            "reformer-base": {"num_layers": 7},
            "reformer-fast": {"num_layers": 5, "prenet_layers": 5},
        },
    ),
    "Multi30k": Size(
        8_000,
        {"embed_dim": 128, "ffn_dim": 256, "num_heads": 4, "dropout": 0.3, "embeddings": "all"},
        {
            "transformer": {"encoder_layers": 4, "decoder_layers": 4},
            "reformer-base": {"num_layers": 5},
            "reformer-fast": {"num_layers": 3, "prenet_layers": 3},
        },
    ),
    "tiny": Size(  # for tests of the benchmarks themselves
        40,
        {"embed_dim": 32, "ffn_dim": 48, "num_heads": 2, "dropout": 0.3},
        {
            "transformer": {"encoder_layers": 1, "decoder_layers": 2},
            "reformer-base": {"num_layers": 2},
            "reformer-fast": {"num_layers": 2, "prenet_layers": 1},
        },
    ),
}


def model_config(family: str, size: str, **changes: Any) -> ModelConfig:
    """The configuration of a family at a size; `changes` replace its values.

    Raises:
        ConfigurationError: if a value of `changes` is invalid.
    """
    config = cast(type[Config], FAMILIES[family][0])
    settings = {**SIZES[size].settings, **SIZES[size].depths[family], **changes}
    return cast(ModelConfig, config.parse(settings, f"{family} at the {size} size"))


def with_shortcuts(kind: ShortcutKind | None) -> dict[str, Any]:
    """Changes to a configuration that add lexical shortcuts."""
    return {} if kind is None else {"shortcuts": {"kind": kind}, "embeddings": "all"}
