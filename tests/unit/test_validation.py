"""Validation: perplexity in parts that fit in memory, and the choice of translated sentences."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from jointnmt.data.batches import load
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.errors import DataError, MissingPackageError
from jointnmt.experiment import TrainingConfig, ValidationConfig
from jointnmt.models import build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.gates import named_layers
from jointnmt.models.interface import AttentionMaps, DecoderState
from jointnmt.models.reformer import ReformerFastConfig
from jointnmt.search import SearchConfig
from jointnmt.training.devices import launch_fabric
from jointnmt.training.loss import cross_entropy_sums
from jointnmt.training.validation import Validation, ValidationResult
from support.tiny import VOCABULARY, ListStore, TinyModel


class RawListStore(ListStore):
    """A `ListStore` that also has raw text."""

    def texts(self, indices: Any) -> list[tuple[str, str]]:
        return [(f"source {index}", f"target {index}") for index in indices]


def validation(store: Any, batches: BatchConfig, **settings: Any) -> Validation:
    fabric = launch_fabric(TrainingConfig(accelerator="cpu"))
    segmentation: Any = SimpleNamespace(target=SimpleNamespace(language="en"))
    return Validation(fabric, store, segmentation, ValidationConfig(**settings), batches, SearchConfig())


class SmallMemory(TinyModel):
    """A model without memory for more than two sentences at once."""

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        if len(source) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return super().forward(source, target_input)


@pytest.mark.parametrize("model", [TinyModel(dropout=0.5), SmallMemory(dropout=0.5)])
def test_perplexity_is_that_of_the_whole_text(model: TinyModel) -> None:
    """Without smoothing and dropout, however small the limits of training, which a sentence may exceed."""
    store = RawListStore(num_pairs=15)
    whole = load(store, range(15))  # type: ignore[arg-type]
    reference = TinyModel()
    reference.load_state_dict(model.state_dict())
    nll = cross_entropy_sums(reference(whole.source, whole.target_input), whole.target_output, 0.0)[1].item()
    for batches in (BatchConfig(), BatchConfig(max_tokens=3, max_cells=5, update_tokens=4)):
        model.train()
        result = validation(store, batches).measure(model, translate=False)
        assert result.nll == pytest.approx(nll / whole.num_target_tokens, rel=1e-6)
        assert result.perplexity == pytest.approx(math.exp(result.nll))
        assert result.bleu is None
        assert not model.training


class Diverged(TinyModel):
    """A model that computes NaN."""

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        return super().forward(source, target_input) * math.nan


def test_a_model_that_computes_no_numbers_is_the_worst_and_is_not_translated_with() -> None:
    """Its `start` would raise if called."""
    result = validation(RawListStore(), BatchConfig()).measure(Diverged(), translate=True)
    assert math.isnan(result.nll) and math.isnan(result.perplexity)
    assert (result.bleu, result.translations) == (None, ())
    assert [result.score(metric) for metric in ("bleu", "chrf", "perplexity")] == [-math.inf] * 3


class NoMemory(TinyModel):
    """A model without memory for any sentence."""

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    def start(self, source: Tensor) -> DecoderState:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")


def test_a_pair_without_room_in_memory_is_named_as_in_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    part = validation(RawListStore(num_pairs=10), BatchConfig(), bleu_sentences=1)
    part.translated = [7]
    with pytest.raises(DataError, match=r"train\.de:\d+: this pair of the validation text"):
        part.measure(NoMemory(), translate=False)
    monkeypatch.setattr(Validation, "_nll", lambda *_: 1.0)
    with pytest.raises(DataError, match=r"train\.de:8: this pair of the validation text"):
        part.measure(NoMemory(), translate=True)


@pytest.mark.parametrize(
    ("wanted", "chosen"), [(None, [*range(10)]), (99, [*range(10)]), (1, [0]), (2, [0, 9]), (4, [0, 3, 6, 9])]
)
def test_translated_sentences_are_spread_evenly(wanted: int | None, chosen: list[int]) -> None:
    part = validation(RawListStore(num_pairs=10), BatchConfig(), bleu_sentences=wanted)
    assert part.translated == chosen
    assert part.references == [f"target {index}" for index in chosen]


def test_a_missing_tokeniser_is_named_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("no MeCab")

    monkeypatch.setattr("sacrebleu.metrics.bleu.BLEU", fail)
    with pytest.raises(MissingPackageError, match="tokeniser"):
        validation(RawListStore(), BatchConfig())
    validation(RawListStore(), BatchConfig(), bleu_every=0)


def test_the_metric_decides_which_score_counts() -> None:
    measured = ValidationResult(nll=2.0, seconds=0.0, bleu=30.0)
    assert (measured.score("perplexity"), measured.score("bleu")) == (-2.0, 30.0)
    assert [ValidationResult(nll=2.0, seconds=0.0).score(metric) for metric in ("bleu", "chrf")] == [None, None]
    assert math.isfinite(ValidationResult(nll=1e6, seconds=0.0).perplexity)


@pytest.mark.parametrize(("metric", "chance", "more"), [("bleu", 1.2, 3.0), ("chrf", 13.0, 16.0)])
def test_a_score_that_is_next_to_nothing_does_not_choose(metric: str, chance: float, more: float) -> None:
    texts = ((6, chance), (5, 0.0), (4, more))
    early = [ValidationResult(nll=nll, seconds=0.0, **{metric: score}).score(metric) for nll, score in texts]
    assert early == [-6, -5, more]


def test_gates_are_averaged_over_real_places_of_the_first_sentences() -> None:
    torch.manual_seed(0)
    sizes = {"embed_dim": 8, "num_heads": 2, "ffn_dim": 8, "num_layers": 2, "prenet_layers": 1}
    model = build_model(ReformerFastConfig(**sizes, shortcuts=ShortcutConfig()), VOCABULARY, VOCABULARY)
    store = RawListStore(num_pairs=6)
    measured = validation(store, BatchConfig()).measure(model, translate=False)
    batch, maps = load(store, range(6)), AttentionMaps()  # type: ignore[arg-type]
    with torch.no_grad():
        model(batch.source, batch.target_input, maps)
    by_hand = [
        gates[: len(source) + 1, : len(target) + 1, 1].mean().item()
        for gates, (source, target) in zip(maps.gates["target"][1], store.pairs(range(6)), strict=True)
    ]
    assert measured.gates["target"][1]["values"] == pytest.approx(sum(by_hand) / 6, rel=1e-5)
    assert {place: len(layers) for place, layers in measured.gates.items()} == {"prenet": 1, "source": 2, "target": 2}
    assert named_layers(measured.gates)["target.2.values"] == measured.gates["target"][1]["values"]
    assert validation(store, BatchConfig()).measure(TinyModel(), translate=False).gates == {}
