"""Several positions of beam search in one call: the result is that of one call after another."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import jointnmt.search.beam as beam
from jointnmt.data.batch import pad_rows
from jointnmt.errors import ModelError
from jointnmt.models import TranslationModel, build_model
from jointnmt.models.interface import AttentionMaps, DecoderState
from jointnmt.models.layers.cache import CachedModel
from jointnmt.models.quantize import Precision, prepare_for_inference
from jointnmt.ops import advance_positions
from jointnmt.search import Hypothesis, SearchConfig, beam_search
from jointnmt.search.beam_state import BeamState
from jointnmt.search.trace import SearchTrace
from jointnmt.text.special import bos_id, eos_id
from support.kernels import MODELS, VOCABULARY, needs_kernels, require_gemm

pytestmark = needs_kernels
SOURCES = pad_rows([*([8 + row] * length + [eos_id] for row, length in enumerate([4, 1, 6, 3, 1, 7, 2, 5]))])
SEARCH = SearchConfig(beam_size=4, max_length_factor=2.0, max_length_offset=9)
"""Positions beyond the initial size of caches, so that they grow."""


def prepared(name: str, precision: Precision = "float32") -> TranslationModel:
    require_gemm(precision)
    torch.manual_seed(7)
    return prepare_for_inference(build_model(MODELS[name], VOCABULARY, VOCABULARY).eval(), precision)


def translated(
    model: TranslationModel, precision: Precision = "float32", sources: Tensor = SOURCES, **given: Any
) -> list[list[Hypothesis]]:
    with torch.autocast("cpu", torch.bfloat16, precision != "float32"):
        return beam_search(model, sources, given.pop("search", SEARCH), num_best=4, **given)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of positions computed by each call."""
    counts: list[int] = []

    def counted(*arguments: Any) -> Any:
        found = advance_positions(*arguments)
        counts.append(found.positions)
        return found

    monkeypatch.setattr(beam, "advance_positions", counted)
    return counts


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_translations_are_those_of_one_position_after_the_other(
    name: str, precision: Precision, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepared(name, precision)
    translated(model, precision)  # work that is done only once
    computed.clear()
    found = [translated(model, precision), *(translated(model, precision, row[None]) for row in SOURCES[:3])]
    assert max(computed) > 5 and sum(computed) > 60
    monkeypatch.setattr(CachedModel, "multi_step_decoder", lambda *_: None)
    computed.clear()
    wanted = [translated(model, precision), *(translated(model, precision, row[None]) for row in SOURCES[:3])]
    assert found == wanted and not computed


def test_prefixes_limits_and_banned_tokens_are_kept_to(computed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared("transformer")
    given: dict[str, Any] = {
        "prefixes": [[9, 9, 9, 9, 9, 9, 9], [], [12], [5, 6], [], [7] * 12, [], [4, 4]],
        "search": replace_search(allow_unknown=False),
    }
    translated(model, **given)
    found = translated(model, **given)
    assert computed
    for prefix, hypotheses in zip(given["prefixes"], found, strict=True):
        assert all([*each.ids[: len(prefix)]] == prefix for each in hypotheses)
    monkeypatch.setattr(CachedModel, "multi_step_decoder", lambda *_: None)
    assert translated(model, **given) == found


def replace_search(**changes: Any) -> SearchConfig:
    return SearchConfig.model_validate({**SEARCH.model_dump(), **changes})


def test_a_model_that_gives_no_numbers_is_an_error(computed: list[int]) -> None:
    model = prepared("transformer")
    for _ in range(2):
        translated(model)
    with torch.no_grad():
        model.target_embedding.positions[8:] = torch.nan  # type: ignore[union-attr, operator, index]
    with pytest.raises(ModelError, match="not a number"):
        translated(model)
    assert computed


@torch.no_grad()
def test_a_search_that_is_recorded_sees_each_position(computed: list[int]) -> None:
    model, trace = prepared("transformer"), SearchTrace()
    translated(model)
    computed.clear()
    translated(model, trace=trace)
    assert not computed and max(node.position for node in trace.trees[0].nodes) > 5


class Without(TranslationModel):
    """A model that never writes a token: it changes the logits of another one, whose states it passes on."""

    def __init__(self, model: TranslationModel, banned: int) -> None:
        super().__init__()
        self.model, self.banned = model, banned

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        raise NotImplementedError

    def start(self, source: Tensor) -> DecoderState:
        return self.model.start(source)

    def step(self, last_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        logits, state = self.model.step(last_ids, state)
        logits = logits.clone()
        logits[:, self.banned] = -torch.inf
        return logits, state


def test_a_step_of_ones_own_is_called_for_each_position(computed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that calls another one, of a subclass, and of a single object."""
    model = prepared("transformer")
    banned = Counter(token for (best, *_) in translated(model) for token in best.ids if token != eos_id).most_common()
    wrapper = Without(model, banned[0][0]).eval()
    step_of_one, of_subclass = prepared("transformer"), prepared("transformer")
    step_of_one.step = Without(deepcopy(model), wrapper.banned).step  # type: ignore[method-assign]
    own = type("Own", (type(model),), {"step": lambda self, *given: Without(model, wrapper.banned).step(*given)})
    of_subclass.__class__ = own
    expected = translated(wrapper, trace=SearchTrace())
    for changed in (wrapper, step_of_one, of_subclass):
        for _ in range(2):
            computed.clear()
            assert translated(changed) == expected and not computed
    assert expected != translated(model)


@torch.no_grad()
def test_what_does_not_fit_is_refused() -> None:
    model = prepared("transformer")
    state = model.start(SOURCES).select(torch.arange(len(SOURCES)).repeat_interleave(4))
    assert model.multi_step_decoder(state) is None, "nothing is recorded yet"
    for _ in range(2):
        _, state = model.step(torch.full((state.slots.num_rows,), bos_id), state)
    decoder = model.multi_step_decoder(state)
    assert decoder is not None
    beams = BeamState.begin(len(SOURCES), 4, filled=1).hypotheses
    free = torch.full((3, len(SOURCES)), -1)
    for required, banned, changed in (
        (torch.full((3, len(SOURCES)), VOCABULARY), (), decoder),
        (free, (VOCABULARY,), decoder),
        (free[:, 1:], (), decoder),
        (free, (), replace(decoder, table=decoder.table[1:])),
        (torch.full((99, len(SOURCES)), -1), (), decoder),
    ):
        with pytest.raises(ValueError, match=r"fit|not a token"):
            advance_positions(changed, beams, required, banned, eos_id)
    assert advance_positions(decoder, beams, free, (), eos_id).positions > 0


@torch.no_grad()
def test_rows_that_became_more_are_not_replayed_as_they_were() -> None:
    model = prepared("transformer")
    state = model.start(SOURCES)
    for _ in range(2):
        _, state = model.step(torch.full((state.slots.num_rows,), bos_id), state)
    assert model.multi_step_decoder(state) is not None
    state = state.select(torch.arange(len(SOURCES)).repeat_interleave(4))
    assert model.multi_step_decoder(state) is None
