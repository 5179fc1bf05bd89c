"""Search over every family of models: caches, reordering and removal of sentences change nothing but speed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from jointnmt.data.batch import Batch, pad_rows
from jointnmt.models import FAMILIES, AttentionMaps, TranslationModel
from jointnmt.search import (
    Hypothesis,
    LengthPenalty,
    SamplingConfig,
    SearchConfig,
    beam_search,
    rescore,
    sample,
    sentence_generator,
)
from jointnmt.text.special import bos_id, eos_id, pad_id

SOURCES = [
    [5, 4, eos_id],
    [4, eos_id],
    [5, 5, 4, 6, 7, 8, 4, eos_id],
    [6, 4, 5, eos_id],
    [8, 8, 8, 8, 8, eos_id],
    [7, eos_id],
    [6, 7, 5, 4, 4, 5, 6, eos_id],
]
VOCABULARY = 9


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> TranslationModel:
    return tiny(request.param, VOCABULARY)


def tiny(family: str, vocabulary: int) -> TranslationModel:
    """A small random model whose distributions are far from uniform."""
    config_class, model_class = FAMILIES[family]
    layers = {name: 2 for name in config_class.model_fields if name.endswith("layers")}
    config = config_class(embed_dim=16, num_heads=2, ffn_dim=24, dropout=0.3, **layers)
    model = model_class(config, vocabulary, vocabulary)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model.eval()


@dataclass
class Prefixes:
    """The state of `WithoutCache`: source and target so far of every row."""

    source: Tensor
    target: Tensor

    def select(self, rows: Tensor) -> Prefixes:
        return Prefixes(self.source[rows], self.target[rows])


class WithoutCache(TranslationModel):
    """A model that decodes by computing the whole prefix at every position."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        return self.model(source, target_input, attn_weights)

    def start(self, source: Tensor) -> Prefixes:
        return Prefixes(source, torch.zeros(len(source), 0, dtype=torch.long))

    def step(self, last_ids: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        target = torch.cat([state.target, last_ids[:, None]], 1)
        return self.model(state.source, target)[:, -1], Prefixes(state.source, target)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """Check that results are equal up to rounding."""
    for some, others in zip(found, expected, strict=True):
        assert [(each.ids, each.complete) for each in some] == [(each.ids, each.complete) for each in others]
        for one, other in zip(some, others, strict=True):
            assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-5)
            assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds(family: str) -> None:
    model = tiny(family, 6)
    targets = [list(ids) for length in range(4) for ids in itertools.product((3, 4, 5), repeat=length)]
    config = SearchConfig(beam_size=len(targets), max_length_factor=0, max_length_offset=4)
    sources = [[5, 4, eos_id], [4, eos_id], [5, 5, 4, 3, 4, eos_id]]
    found = beam_search(model, pad_rows(sources), config, num_best=len(targets))
    for source, hypotheses in zip(sources, found, strict=True):
        tokens = rescore(model, Batch.collate([source[:-1]] * len(targets), targets))
        every = [
            Hypothesis.scored(ids, each, LengthPenalty(1.0), 4) for ids, (each, _) in zip(targets, tokens, strict=True)
        ]
        assert_same([hypotheses], [sorted(every, key=lambda each: -each.score)])


@pytest.mark.parametrize("beam_size", [1, 4])
def test_beam_search_finds_the_same_without_cache(model: TranslationModel, beam_size: int) -> None:
    config = SearchConfig(beam_size=beam_size, max_length_offset=4)
    prefixes = [[], [5, 6], [], [], [4], [], []]
    found = beam_search(model, pad_rows(SOURCES), config, prefixes, num_best=beam_size)
    assert_same(found, beam_search(WithoutCache(model), pad_rows(SOURCES), config, prefixes, num_best=beam_size))
    assert len({len(each[0].ids) for each in found}) > 2, "the sentences of this test leave at different positions"


def test_sampling_draws_the_same_without_cache(model: TranslationModel) -> None:
    def draw(decoder: TranslationModel) -> list[list[Hypothesis]]:
        generators = [sentence_generator(0, number) for number in range(len(SOURCES))]
        return sample(decoder, pad_rows(SOURCES), SamplingConfig(top_p=0.95), generators, num_samples=3)

    assert_same(draw(model), draw(WithoutCache(model)))


@pytest.mark.slow
def test_search_is_where_the_model_is_whatever_the_default_device(model: TranslationModel) -> None:
    def found() -> list[list[Hypothesis]]:
        generators = [sentence_generator(0, number) for number in range(len(SOURCES))]
        return beam_search(model, source, SearchConfig(beam_size=3)) + sample(
            model, source, SamplingConfig(), generators
        )

    source = pad_rows(SOURCES)
    expected = found()
    with torch.device("meta"):
        assert_same(found(), expected)


def test_beam_search_reports_what_rescoring_gives(model: TranslationModel) -> None:
    found = beam_search(model, pad_rows(SOURCES), SearchConfig(), num_best=5)
    pairs = [(source[:-1], each.ids) for source, hypotheses in zip(SOURCES, found, strict=True) for each in hypotheses]
    tokens = rescore(model, Batch.collate(*zip(*pairs, strict=True)))
    reported = [each.token_log_probabilities for hypotheses in found for each in hypotheses]
    for one, (other, _) in zip(reported, tokens, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.slow
def test_neither_batch_nor_padding_nor_order_changes_a_translation(model: TranslationModel) -> None:
    config = SearchConfig(beam_size=3)
    together = beam_search(model, pad_rows(SOURCES), config, num_best=3)
    wider = torch.nn.functional.pad(pad_rows(SOURCES), (0, 5), value=pad_id)
    assert_same(beam_search(model, wider, config, num_best=3), together)
    assert_same(beam_search(model, pad_rows(SOURCES[::-1]), config, num_best=3)[::-1], together)
    assert_same([beam_search(model, pad_rows([source]), config, num_best=3)[0] for source in SOURCES], together)


def test_greedy_search_follows_the_likeliest_token_of_forward(model: TranslationModel) -> None:
    [[hypothesis]] = beam_search(model, pad_rows(SOURCES[:1]), SearchConfig(beam_size=1))
    target = [bos_id, *hypothesis.ids]
    logits = model(pad_rows(SOURCES[:1]), torch.tensor([target]))[0]
    logits[:, [pad_id, bos_id]] = -torch.inf
    likeliest = logits.argmax(-1).tolist()
    assert likeliest[:-1] == list(hypothesis.ids)
    assert likeliest[-1] == eos_id or not hypothesis.complete
