"""Models on a device compute the same as the reference in float64 on the CPU.

JOINTNMT_TEST_DEVICE names the device (default: the CPU); `python -m benchmarks.gpu tests` names a GPU.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from jointnmt.models import TranslationModel
from jointnmt.models.quantize import Precision, prepare_for_inference
from jointnmt.models.reference import Reference
from jointnmt.search.beam import SearchConfig, beam_search
from support.families import VARIANTS, sources, target_inputs, tiny_model
from support.tiers import mostly_slow
from support.tiny import tiny_trainer

DEVICE = torch.device(os.environ.get("JOINTNMT_TEST_DEVICE", "cpu"))
SOURCE, TARGET = sources([5, 3, 7, 2]), target_inputs([4, 6, 2, 5])
SEARCH = SearchConfig(beam_size=3, max_length_factor=1, max_length_offset=4)
every_variant = pytest.mark.parametrize(
    "variant", mostly_slow(VARIANTS, ["transformer-fusion", "reformer-fast-shortcuts"])
)


def on_device(variant: str) -> TranslationModel:
    return tiny_model(variant).float().to(DEVICE)


def reference(variant: str) -> tuple[TranslationModel, dict[str, Parameter]]:
    """The reference of a model, with the weights that receive its gradients."""
    weights = dict(tiny_model(variant).named_parameters())
    config: Any = VARIANTS[variant]
    return Reference(config, weights).eval(), weights


@every_variant
def test_logits_and_gradients_are_the_references(variant: str) -> None:
    model, (plain, weights) = on_device(variant), reference(variant)
    logits, expected = model(SOURCE.to(DEVICE), TARGET.to(DEVICE)), plain(SOURCE, TARGET)
    assert_close(logits.cpu().double(), expected, rtol=1e-3, atol=1e-3)
    gold = TARGET.roll(-1, 1).flatten()
    cross_entropy(logits.flatten(0, 1), gold.to(DEVICE)).backward()
    cross_entropy(expected.flatten(0, 1), gold).backward()
    own = dict(model.named_parameters())
    for name, weight in weights.items():
        assert weight.grad is not None, name
        found = own[name].grad
        assert found is not None, name
        assert_close(found.cpu().double(), weight.grad, rtol=1e-3, atol=1e-4, msg=name)


@every_variant
def test_mixed_precision_is_close(variant: str) -> None:
    model, expected = on_device(variant), reference(variant)[0](SOURCE, TARGET)
    with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16):
        logits = model(SOURCE.to(DEVICE), TARGET.to(DEVICE)).float().cpu().double()
    assert (logits - expected).std() < 0.05 * expected.std()


@every_variant
def test_beam_search_finds_what_the_reference_finds(variant: str) -> None:
    found = beam_search(on_device(variant).eval(), SOURCE.to(DEVICE), SEARCH)
    expected = beam_search(reference(variant)[0], SOURCE, SEARCH)
    assert [each[0].ids for each in found] == [each[0].ids for each in expected]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@every_variant
def test_replayed_positions_are_those_that_are_computed(
    variant: str, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal to the bit: the same kernels on the same memory."""
    model = prepare_for_inference(on_device(variant).eval(), precision)
    scores = []
    for graphs in ("1", "0"):
        monkeypatch.setenv("JOINTNMT_GRAPHS", graphs)
        with torch.autocast(DEVICE.type, torch.bfloat16, precision == "bfloat16"):
            found = beam_search(model, SOURCE.to(DEVICE), SEARCH)
        scores.append([(each.ids, each.score) for hypotheses in found for each in hypotheses])
    assert scores[0] == scores[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_updates_are_those_of_the_cpu(precision: str) -> None:
    place = "gpu" if DEVICE.type == "cuda" else "cpu"
    own, plain = (
        tiny_trainer(dropout=0, accelerator=each, precision=kind)
        for each, kind in ((place, precision), ("cpu", "float32"))
    )
    losses = [
        [report.sums.loss for report, _ in zip(trainer.steps(), range(4), strict=False)] for trainer in (own, plain)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4 if precision == "float32" else 0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", [None, "transformer-fusion", "reformer-base", "reformer-fast-shortcuts"])
def test_replayed_updates_are_those_that_are_computed(
    variant: str | None, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout included; a GPU sums the gradients of embeddings in any order."""
    place, updates = ("gpu", 40) if DEVICE.type == "cuda" else ("cpu", 3)  # without captured graphs
    norms = []
    for graphs in ("1", "0"):
        monkeypatch.setenv("JOINTNMT_GRAPHS", graphs)
        model = None if variant is None else tiny_model(variant).float()
        trainer = tiny_trainer(model=model, dropout=0.2, accelerator=place, precision=precision)
        steps = zip(trainer.steps(), range(updates), strict=False)
        norms.append([number for report, _ in steps for number in (report.sums.loss, report.gradient_norm)])
        if DEVICE.type == "cuda":
            assert trainer._graphs is not None
            assert bool(trainer._graphs._replays) == (graphs == "1")
    assert norms[0] == pytest.approx(norms[1], rel=1e-3 if precision == "float32" else 0.02)
