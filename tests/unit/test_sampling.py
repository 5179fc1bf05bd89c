"""Sampling: the right distribution, the right tokens, and no dependence on the batch."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from pydantic import ValidationError

from jointnmt.data.batch import Batch, pad_rows
from jointnmt.errors import DataError, ModelError
from jointnmt.search import SamplingConfig, SearchConfig, beam_search, rescore, sample, sentence_generator
from jointnmt.search.sampling import draw
from jointnmt.text.special import bos_id, eos_id, pad_id, unk_id
from support.table_model import TableModel

SOURCES = [[5, 4, eos_id], [4, eos_id], [5, 5, 4, 6, eos_id], [6, 4, 5, eos_id]]


def generators(count: int = len(SOURCES), seed: int = 0) -> list[torch.Generator]:
    return [sentence_generator(seed, number) for number in range(count)]


def test_translations_are_drawn_from_the_models_distribution() -> None:
    model = TableModel(vocabulary=5, seed=1, scale=1.0)
    config = SamplingConfig(max_length_factor=0, max_length_offset=2)
    [samples] = sample(model, pad_rows(SOURCES[:1]), config, generators(1), num_samples=4000)
    first = model.logits(tuple(SOURCES[0]), (bos_id,)).softmax(-1)[[eos_id, unk_id, 4]]
    expected = (first / first.sum()).tolist()
    counts = Counter(each.ids for each in samples)
    assert counts.keys() == {(), (unk_id,), (4,)}
    for ids, probability in zip([(), (unk_id,), (4,)], expected, strict=True):
        assert counts[ids] / 4000 == pytest.approx(probability, abs=0.03)
    assert all(each.complete == (each.ids == ()) for each in samples)


def test_scores_are_the_models_own_whatever_the_temperature() -> None:
    model = TableModel(vocabulary=9, seed=1)
    config = SamplingConfig(temperature=0.5, top_k=4, top_p=0.9, length_penalty=1.0)
    found = sample(model, pad_rows(SOURCES), config, generators(), num_samples=3)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        batch = Batch.collate([source[:-1]] * 3, [each.ids for each in hypotheses])
        for hypothesis, (tokens, _) in zip(hypotheses, rescore(model, batch), strict=True):
            assert hypothesis.token_log_probabilities == pytest.approx(tokens, abs=1e-5)
            assert hypothesis.score == pytest.approx(sum(tokens) / len(tokens), abs=1e-5)


def test_a_sample_depends_on_its_seed_and_number_only() -> None:
    model = TableModel(vocabulary=9, seed=4)
    config = SamplingConfig()
    together = sample(model, pad_rows(SOURCES), config, generators(), num_samples=3)
    alone = [
        sample(model, pad_rows([source]), config, [generator], num_samples=3)[0]
        for source, generator in zip(SOURCES, generators(), strict=True)
    ]
    assert together == alone
    assert together == sample(model, pad_rows(SOURCES), config, generators(), num_samples=3)
    assert together != sample(model, pad_rows(SOURCES), config, generators(seed=1), num_samples=3)
    assert [each[0] for each in together] == [
        each[0] for each in sample(model, pad_rows(SOURCES), config, generators())
    ]
    same = [[5, 4, eos_id]] * 2
    assert len({each[0].ids for each in sample(model, pad_rows(same * 4), config, generators(8))}) > 1


def test_finished_sentences_leave() -> None:
    model = TableModel(vocabulary=6, seed=4)
    sample(model, pad_rows(SOURCES * 3), SamplingConfig(), generators(12), num_samples=2)
    counts = [len(rows) for rows in model.seen]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 24
    assert len(set(counts)) > 3
    for rows in model.seen:
        assert all(rows[first][0] == rows[first + 1][0] for first in range(0, len(rows), 2))


def test_one_likeliest_token_or_no_temperature_is_greedy() -> None:
    model = TableModel(vocabulary=9, seed=2)
    greedy = beam_search(model, pad_rows(SOURCES), SearchConfig(beam_size=1))
    for config in (SamplingConfig(top_k=1), SamplingConfig(top_p=1e-6), SamplingConfig(temperature=1e-4)):
        assert sample(model, pad_rows(SOURCES), config, generators()) == greedy


def test_draw_cuts_by_rank_and_by_probability() -> None:
    log_probabilities = torch.tensor([[0.1, 0.4, 0.2, 0.0, 0.3]]).log()
    numbers = torch.tensor([0.0, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91, 0.9999999], dtype=torch.float64)
    rows = log_probabilities.expand(len(numbers), 5)

    def drawn(**settings: float) -> list[int]:
        ids, values = draw(rows, numbers, SamplingConfig.model_validate(settings))
        assert torch.equal(values, log_probabilities[0, ids]), "the model's own, whatever the settings"
        return ids.tolist()

    assert drawn() == [1, 1, 4, 4, 2, 2, 0, 0]
    assert set(drawn(top_k=2)) == {1, 4}
    assert set(drawn(top_p=0.75)) == {1, 4, 2}
    assert set(drawn(top_p=0.65)) == {1, 4}
    assert set(drawn(top_p=0.75, top_k=2)) == {1, 4}
    assert drawn(temperature=1000.0) == [1, 4, 4, 2, 2, 0, 0, 0]
    assert drawn(temperature=0.1)[:7] == [1] * 7


@pytest.mark.parametrize("top_k", [None, 2, 40])
@pytest.mark.parametrize("value", [-torch.inf, torch.nan])
def test_what_cannot_be_drawn_is_an_error(value: float, top_k: int | None) -> None:
    rows = torch.zeros(2, 50).log_softmax(-1)
    rows[1] = value
    with pytest.raises(ModelError, match="not a number" if math.isnan(value) else "allows no translation"):
        draw(rows, torch.tensor([0.1, 0.9], dtype=torch.float64), SamplingConfig(top_k=top_k))


def test_the_likeliest_tokens_are_found_however_many() -> None:
    rows = torch.randint(0, 9, (8, 50)).float().log_softmax(-1)
    numbers = torch.rand(8, dtype=torch.float64)
    for top_k in (1, 4, 5, 30, 50, 99):
        values, ids = rows.sort(dim=-1, descending=True, stable=True)
        limits = values[:, :top_k].double().softmax(-1).cumsum(-1)
        expected = ids.gather(1, (limits <= numbers[:, None]).sum(1, keepdim=True))[:, 0]
        assert torch.equal(draw(rows, numbers, SamplingConfig(top_k=top_k))[0], expected)


@pytest.mark.parametrize("top_k", [None, 2, 40])
def test_rows_are_drawn_alike_however_many_at_once(top_k: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, numbers = torch.randn(13, 50).log_softmax(-1), torch.rand(13, dtype=torch.float64)
    whole = draw(rows, numbers, SamplingConfig(top_k=top_k))
    monkeypatch.setattr("jointnmt.search.sampling.SORTED_AT_ONCE", 170)
    parts = draw(rows, numbers, SamplingConfig(top_k=top_k))
    assert all(torch.equal(*both) for both in zip(whole, parts, strict=True))


def test_rules_hold_for_samples_as_well() -> None:
    model = TableModel(vocabulary=6, seed=0)
    config = SamplingConfig(allow_unknown=False, max_length_factor=0, max_length_offset=4)
    prefixes = [[5, 4], [], [], [unk_id]]
    found = sample(model, pad_rows(SOURCES), config, generators(), prefixes, num_samples=50)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        for each in hypotheses:
            assert each.ids[: len(prefix)] == tuple(prefix)
            assert not {pad_id, bos_id, eos_id, unk_id} & set(each.ids[len(prefix) :])
            assert len(each.ids) <= 3
            assert each.complete == (len(each.ids) < 3)
    with pytest.raises(DataError, match="sentence 0: the target prefix"):
        sample(model, pad_rows(SOURCES), config, generators(), [[5, 4, 5, 4], [], [], []])


def test_wrong_use_is_refused() -> None:
    model = TableModel(vocabulary=6)
    with pytest.raises(ValueError, match="1 generators for 4 sentences"):
        sample(model, pad_rows(SOURCES), SamplingConfig(), generators(1))
    with pytest.raises(ValueError, match="num_samples is 0, but must be at least 1"):
        sample(model, pad_rows(SOURCES), SamplingConfig(), generators(), num_samples=0)
    for wrong in ({"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": 0}):
        with pytest.raises(ValidationError):
            SamplingConfig.model_validate(wrong)
    model.train()
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        sample(model, pad_rows(SOURCES), SamplingConfig(), generators())
