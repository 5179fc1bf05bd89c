"""A translation does not depend on the rest of its batch: texts and scores are equal to the bit.

With the kernels this holds for every batch; where PyTorch multiplies (without kernels, in float16), for sentences that
are batches of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from jointnmt.data.batch import collate_sources
from jointnmt.models import ModelConfig, TranslationModel, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.ensemble import Ensemble
from jointnmt.models.quantize import prepare_for_inference
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops import backend
from jointnmt.search import Hypothesis, SearchConfig, beam_search
from jointnmt.translator.batching import plan_window
from support.kernels import needs_kernels, require_gemm
from support.tiers import mostly_slow

VOCABULARY = 43
SIZES = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 80, "dropout": 0.0}
DEPTHS = {"encoder_layers": 1, "decoder_layers": 1}
GRID = {"num_layers": 1}
FAST = {"num_layers": 1, "prenet_layers": 1}


def transformer(*places: str, kind: str = "plain", source: str = "embedding", **settings: Any) -> ModelConfig:
    shortcuts = ShortcutConfig.model_validate({"kind": kind, "places": places, "input": source}) if places else None
    return TransformerConfig(**{**SIZES, **DEPTHS, **settings}, shortcuts=shortcuts)


def reformer(*places: str, kind: str = "plain", **settings: Any) -> ModelConfig:
    shortcuts = ShortcutConfig.model_validate({"kind": kind, "places": places}) if places else None
    if "prenet" in places or settings.pop("fast", False):
        return ReformerFastConfig(**SIZES, **FAST, shortcuts=shortcuts, **settings)
    return ReformerBaseConfig(**SIZES, **GRID, shortcuts=shortcuts, **settings)


EVERYWHERE = ("encoder", "decoder", "cross")
MODELS: dict[str, ModelConfig] = {
    "transformer": transformer(),
    "transformer-post": transformer(norm="post", attention_bias=False),
    "transformer-emelin": transformer(emelin_compatible=True),
    **{
        f"transformer-{kind}-{'-'.join(places)}": transformer(*places, kind=kind)
        for kind in ("plain", "fusion")
        for places in (("encoder",), ("decoder",), ("cross",), EVERYWHERE)
    },
    "transformer-plain-post": transformer(*EVERYWHERE, norm="post"),
    "transformer-plain-emelin": transformer(*EVERYWHERE, emelin_compatible=True, attention_bias=False),
    "transformer-fusion-emelin": transformer(*EVERYWHERE, kind="fusion", emelin_compatible=True),
    "transformer-two-below": transformer(
        "encoder", "decoder", kind="fusion", source="two-below", encoder_layers=2, decoder_layers=2
    ),
    "reformer-base": reformer(),
    "reformer-base-max": reformer(reduction="max"),
    "reformer-base-mean": reformer(reduction="mean", attention_bias=False),
    "reformer-fast": reformer(fast=True),
    **{
        f"reformer-{kind}-{'-'.join(places)}": reformer(*places, kind=kind)
        for kind in ("plain", "fusion")
        for places in (("source",), ("target",), ("source", "target"), ("prenet",), ("prenet", "source", "target"))
    },
}
FAST_TESTS = ("transformer-fusion-emelin", "reformer-base", "reformer-fusion-prenet-source-target")
PRECISIONS = ("float32", "bfloat16", "int8")
Translations = list[list[Hypothesis]]


def prepared(name: str, precision: Any) -> TranslationModel:
    """A random model whose distributions are far from uniform; or an ensemble of two."""
    if name == "ensemble":
        return Ensemble([prepared("transformer", precision), prepared("reformer-fast", precision)])
    torch.manual_seed(1)
    model = build_model(MODELS[name], VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return prepare_for_inference(model, precision)


def sentences(count: int) -> list[list[int]]:
    """Some of one token, whose products have a single row, and some with more rows than a block."""
    generator = torch.Generator().manual_seed(7)
    lengths = [1, 2, 13, *torch.randint(1, 11, (count - 3,), generator=generator).tolist()]
    return [torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def translator(name: str, precision: Any) -> Callable[[Sequence[list[int]], Sequence[Sequence[int]]], Translations]:
    """Translate sentences in the given batches; returns translations in the order of the sentences."""
    model, config = prepared(name, precision), SearchConfig(beam_size=3, max_length_factor=1, max_length_offset=2)
    kind = torch.bfloat16 if precision == "int8" else getattr(torch, precision)

    def translate(sources: Sequence[list[int]], batches: Sequence[Sequence[int]]) -> Translations:
        found: dict[int, list[Hypothesis]] = {}
        with torch.autocast("cpu", kind, precision != "float32"):
            for batch in batches:
                source = collate_sources([sources[number] for number in batch])
                found |= dict(zip(batch, beam_search(model, source, config, num_best=2), strict=True))
        return [found[number] for number in range(len(sources))]

    return translate


def alone(sources: Sequence[list[int]]) -> list[list[int]]:
    return [[number] for number in range(len(sources))]


def arrangements(sources: Sequence[list[int]]) -> list[list[list[int]]]:
    """Batches of several sizes in several orders: few large ones, small ones, and those of the translator."""
    count = len(sources)
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(3)).tolist()
    lengths = [len(source) + 1 for source in sources]
    return [
        [list(range(count))[::-1][start : start + 100] for start in range(0, count, 100)],
        [shuffled[start : start + 5] for start in range(0, count, 5)],
        plan_window(lengths, lengths, 500, 500),
    ]


def assert_independent(name: str, precision: str, count: int) -> None:
    sources, translate = sentences(count), translator(name, precision)
    expected = translate(sources, alone(sources))
    assert len({len(each[0].ids) for each in expected}) > 2, "the sentences of this test leave at different positions"
    for batches in arrangements(sources):
        assert translate(sources, batches) == expected


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", mostly_slow([*MODELS, "ensemble"], FAST_TESTS))
def test_with_kernels_a_translation_depends_on_its_sentence_alone(name: str, precision: str) -> None:
    require_gemm(precision)
    assert_independent(name, precision, 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("transformer-post", "float32"),
        ("transformer-fusion-emelin", "bfloat16"),
        ("reformer-fusion-source-target", "int8"),
    ],
)
def test_with_kernels_200_translations_depend_on_their_sentences_alone(name: str, precision: str) -> None:
    require_gemm(precision)
    assert_independent(name, precision, 200)


@pytest.mark.parametrize("precision", [*PRECISIONS, "float16"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer-fusion-emelin", "reformer-fusion-prenet-source-target"])
@pytest.mark.parametrize("forms", ["plain", pytest.param("native", marks=needs_kernels)])
def test_sentences_that_are_batches_of_their_own_are_translated_alike_in_every_order(
    name: str, precision: str, forms: Any
) -> None:
    with backend(forms):
        sources, translate = sentences(6), translator(name, precision)
        expected = translate(sources, alone(sources))
        assert translate(sources, alone(sources)[::-1]) == expected
        assert translate(sources, [*alone(sources)[3:], *alone(sources)[:3]]) == expected


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["transformer-fusion-emelin", "reformer-fusion-prenet-source-target"])
def test_no_product_of_a_prepared_model_is_left_to_pytorch(name: str, precision: str) -> None:
    require_gemm(precision)
    model = prepared(name, precision)
    assert not [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert not isinstance(model.output, nn.Linear)
