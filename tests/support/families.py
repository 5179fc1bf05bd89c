"""Small models of every family and variant, for property tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jointnmt.models import FAMILIES, ModelConfig, TranslationModel, build_model
from jointnmt.models.checking import marked
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.text.special import bos_id, eos_id

VOCABULARY = 23
SIZES = {"embed_dim": 8, "num_heads": 2, "ffn_dim": 12, "dropout": 0.0}
SMALL = {**SIZES, "encoder_layers": 2, "decoder_layers": 2}
EVERYWHERE = ("encoder", "decoder", "cross")

VARIANTS: dict[str, ModelConfig] = {
    "transformer-pre": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2),
    "transformer-post": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2, norm="post"),
    "transformer-tied": TransformerConfig(**SIZES, encoder_layers=1, decoder_layers=1, embeddings="all"),
    "transformer-plain-shortcuts": TransformerConfig(**SMALL, norm="post", shortcuts=ShortcutConfig()),
    "transformer-fusion": TransformerConfig(**SMALL, shortcuts=ShortcutConfig(kind="fusion", places=EVERYWHERE)),
    "transformer-two-below": TransformerConfig(
        **{**SMALL, "encoder_layers": 3, "decoder_layers": 3},
        shortcuts=ShortcutConfig(kind="fusion", input="two-below"),
    ),
    "transformer-emelin": TransformerConfig(
        **SMALL, attention_bias=False, emelin_compatible=True, shortcuts=ShortcutConfig(places=("decoder", "cross"))
    ),
    "reformer-base": ReformerBaseConfig(**SIZES, num_layers=2),
    "reformer-base-max": ReformerBaseConfig(**SIZES, num_layers=1, reduction="max", embeddings="target"),
    "reformer-base-mean": ReformerBaseConfig(**SIZES, num_layers=1, reduction="mean", shared_dropout=False),
    "reformer-base-source-shortcuts": ReformerBaseConfig(
        **SIZES, num_layers=2, attention_bias=False, shortcuts=ShortcutConfig(kind="fusion", places=("source",))
    ),
    "reformer-fast": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=1),
    "reformer-fast-shortcuts": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=1, shortcuts=ShortcutConfig()),
}
assert {config.family for config in VARIANTS.values()} == set(FAMILIES)


def tiny_model(variant: str, **changes: object) -> TranslationModel:
    """A float64 model in which no weight has its special initial value, including biases and norms."""
    generator = torch.Generator().manual_seed(5)
    config = VARIANTS[variant].model_copy(update=changes)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = build_model(config, VOCABULARY, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def sentences(lengths: Sequence[int], seed: int, start: int | None = None, end: int | None = None) -> Tensor:
    """Random ids padded on the right; `lengths` include the begin (`start`) or end mark (`end`) if there is one."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
    return marked(ids, lengths, start, end)


def sources(lengths: Sequence[int], seed: int = 1) -> Tensor:
    """Source sentences, end marks included."""
    return sentences(lengths, seed, end=eos_id)


def target_inputs(lengths: Sequence[int], seed: int = 2) -> Tensor:
    """Target inputs, begin marks included."""
    return sentences(lengths, seed, start=bos_id)
