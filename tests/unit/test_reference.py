"""The models against the reference, in values and gradients; and the reference against the independent equations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from jointnmt.models import FAMILIES, ModelConfig, TranslationModel, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reference import Reference
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.search import SearchConfig, beam_search
from support import equations
from support.families import VOCABULARY, sources, target_inputs

SIZES = {"embed_dim": 8, "num_heads": 2, "ffn_dim": 12, "dropout": 0.0}
TRANSFORMER = {**SIZES, "encoder_layers": 3, "decoder_layers": 3}
BASE = {**SIZES, "num_layers": 2}
FAST = {**SIZES, "num_layers": 2, "prenet_layers": 3}
DEPTHS = {"transformer": TRANSFORMER, "reformer-base": BASE, "reformer-fast": FAST}
COMPATIBLE = {"emelin_compatible": True, "attention_bias": False}


def shortcuts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every kind of shortcuts at every set of places with a computation of its own, by family."""
    places = {
        "transformer": [None, ("encoder",), ("decoder",), ("cross",), ("encoder", "decoder", "cross")],
        "reformer-base": [None, ("source",), ("target",)],
        "reformer-fast": [None, ("prenet",), ("source",), ("target",), ("prenet", "source")],
    }
    for family, of_family in places.items():
        yield family, {}
        for kind in ("plain", "fusion"):
            for where in of_family:
                yield family, {"shortcuts": ShortcutConfig(kind=kind, places=where)}
    two_below = ShortcutConfig(kind="fusion", input="two-below")
    yield "transformer", {"shortcuts": two_below}
    yield "transformer", {"shortcuts": two_below.model_copy(update={"kind": "plain", "places": ("decoder",)})}
    yield "reformer-fast", {"shortcuts": two_below.model_copy(update={"places": ("prenet",)})}


def configurations() -> Iterator[ModelConfig]:
    """Every family with every kind of shortcuts everywhere, both norm orders, all reductions."""
    for family, settings in shortcuts():
        if family == "transformer":
            for norm in ({"norm": "pre"}, {"norm": "post"}, COMPATIBLE):
                yield TransformerConfig(**TRANSFORMER, **settings, **norm)
        elif family == "reformer-fast":
            yield ReformerFastConfig(**FAST, **settings)
        else:
            for reduction in ("attention", "max", "mean"):
                yield ReformerBaseConfig(**BASE, reduction=reduction, **settings)
    for embeddings in ("target", "all"):
        yield TransformerConfig(**TRANSFORMER, embeddings=embeddings)
        yield ReformerFastConfig(**FAST, embeddings=embeddings, reduction="mean")
    yield ReformerBaseConfig(**BASE, attention_bias=False)
    yield ReformerBaseConfig(**{**BASE, "embed_dim": 6})  # heads of three features, odd halves


def name(config: ModelConfig) -> str:
    given = {
        key: value for key, value in config if key not in SIZES and value != type(config).model_fields[key].default
    }
    if config.shortcuts is not None:
        where = "+".join(config.shortcuts.places or ("everywhere",))
        given["shortcuts"] = f"{config.shortcuts.kind} {config.shortcuts.input} {where}"
    return f"{config.family} {' '.join(str(value) for key, value in given.items() if 'layers' not in key)}".strip()


every_configuration = pytest.mark.parametrize("config", list(configurations()), ids=name)


def moved(config: ModelConfig, dtype: torch.dtype, distance: float = 0.2) -> TranslationModel:
    """A model whose weights are moved, so that an error in any norm, bias, gate or mask shows."""
    model = build_model(config, VOCABULARY, VOCABULARY).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(distance * torch.randn_like(parameter))
    return model


def logits_and_gradients(model: TranslationModel) -> tuple[Tensor, dict[str, Tensor]]:
    """Results for sentences of different lengths on both sides, padded target positions included."""
    model.zero_grad()
    logits = model(sources((5, 3, 6)), target_inputs((4, 6, 2)))
    logits.tanh().square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return logits.detach(), gradients


@every_configuration
def test_models_have_the_values_and_gradients_of_the_reference_in_float64(config: ModelConfig) -> None:
    """Equal up to the rounding of position encodings, which the models keep in float32."""
    model = moved(config, torch.float64)
    reference = Reference(config, model.state_dict())
    logits, gradients = logits_and_gradients(model)
    expected, expected_gradients = logits_and_gradients(reference)
    assert expected.dtype == torch.float64
    assert_close(logits, expected, rtol=2e-6, atol=2e-6)
    assert gradients.keys() == expected_gradients.keys() == dict(model.named_parameters()).keys()
    for key, gradient in gradients.items():
        assert_close(
            gradient, expected_gradients[key], rtol=2e-5, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


@every_configuration
def test_models_have_the_values_and_gradients_of_the_reference_in_float32(config: ModelConfig) -> None:
    """By the CPU kernels if there are any; sizes are multiples of 16, as they require."""
    config = config.model_copy(update={"embed_dim": 32, "ffn_dim": 48})
    model = moved(config, torch.float32, distance=0.1)
    exact = Reference(config, {key: weight.double() for key, weight in model.state_dict().items()})
    logits, gradients = logits_and_gradients(model)
    expected, expected_gradients = logits_and_gradients(exact)
    assert_close(logits, expected.float(), rtol=1e-4, atol=1e-4)
    for key, gradient in gradients.items():
        wanted = expected_gradients[key]
        assert (gradient - wanted).norm() < 1e-4 * wanted.norm() + 1e-4, key


@pytest.mark.parametrize("settings", [{}, {"shortcuts": ShortcutConfig(kind="fusion")}], ids=["none", "fusion"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_translates_as_the_models_do(family: str, settings: dict[str, Any]) -> None:
    model = moved(FAMILIES[family][0](**DEPTHS[family], **settings), torch.float32).eval()
    reference = Reference(model.config, model.state_dict()).eval()
    config = SearchConfig(beam_size=3, max_length_offset=2)
    found, expected = (beam_search(each, sources((5, 3, 6)), config) for each in (model, reference))
    assert [each[0].ids for each in found] == [each[0].ids for each in expected]
    assert [each[0].score for each in found] == pytest.approx([each[0].score for each in expected], rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_models_are_about_as_exact_as_the_reference_in_bfloat16(family: str) -> None:
    """Both compared with float32, over several draws; the models also keep states of the grid in bfloat16."""
    config = FAMILIES[family][0](**{**DEPTHS[family], "embed_dim": 32, "ffn_dim": 48})
    errors = torch.zeros(2)
    for seed in range(8):
        torch.manual_seed(seed)
        model = moved(config, torch.float32, distance=0.1)
        reference = Reference(config, model.state_dict())
        exact_logits, exact = logits_and_gradients(reference)
        exact = {name: gradient.clone() for name, gradient in exact.items()}
        for number, each in enumerate((model, reference)):
            with torch.autocast("cpu", torch.bfloat16):
                logits, gradients = logits_and_gradients(each)
            assert (logits - exact_logits).norm() < 0.03 * exact_logits.norm()
            errors[number] += sum((gradients[name] - exact[name]).square().sum() for name in exact).sqrt()
    assert errors[0] <= 1.5 * errors[1]


# The equations of tests/support/equations.py share only the names of weights with the reference.

SENTENCE, TRANSLATION = torch.tensor([[5, 9, 4, 16, 2]]), torch.tensor([[1, 7, 7, 12]])


@every_configuration
def test_the_reference_computes_the_equations(config: ModelConfig) -> None:
    config = config.model_copy(update={"embed_dim": equations.EMBED})
    model, w = equations.away_from_initial_values(build_model(config, VOCABULARY, VOCABULARY))
    source, target = SENTENCE[0].numpy(), TRANSLATION[0].numpy()
    at = equations.Shortcuts(
        config.shortcut_places,
        config.shortcuts is not None and config.shortcuts.kind == "fusion",
        config.reads_two_below,
        isinstance(config, TransformerConfig) and config.emelin_compatible,
    )
    if isinstance(config, TransformerConfig):
        expected = equations.transformer(source, target, w, config.encoder_layers, config.norm == "pre", at)
    else:
        prenet = config.prenet_layers if isinstance(config, ReformerFastConfig) else 0
        expected = equations.reformer(source, target, w, config.num_layers, prenet, config.reduction, at)
    logits = Reference(config, model.state_dict())(SENTENCE, TRANSLATION)
    np.testing.assert_allclose(logits[0].detach().numpy(), expected, rtol=1e-9, atol=1e-9)


def test_the_weights_of_the_reference_have_the_names_and_ties_of_the_models() -> None:
    model = moved(TransformerConfig(**TRANSFORMER, embeddings="all"), torch.float32)
    copied, shared = (
        Reference(model.config, model.state_dict()),
        Reference(model.config, dict(model.named_parameters())),
    )
    for reference in (copied, shared):
        assert reference.state_dict().keys() == model.state_dict().keys()
        assert dict(reference.named_parameters()).keys() == dict(model.named_parameters()).keys()
        assert reference.weights["output.weight"] is reference.weights["source_embedding.weight"]
    assert all(parameter is shared.weights[name] for name, parameter in model.named_parameters())
    before = model.output.weight.clone()
    torch.nn.init.zeros_(copied.weights["output.weight"])
    assert torch.equal(model.output.weight, before)


def test_dropout_of_the_reference_is_shared_along_axes() -> None:
    model = moved(ReformerBaseConfig(**SIZES), torch.float32)
    reference = Reference(model.config, model.state_dict()).train()
    dropped = reference.drop(torch.ones(2, 3, 4, 8), 0.5, (1,))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(dropped, dropped[:, :, :1].expand_as(dropped))
    assert reference.eval().drop(dropped, 0.5) is dropped
