"""Beam search against exhaustive enumeration, rescoring, and its own rules."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from jointnmt.data.batch import Batch, pad_rows
from jointnmt.errors import ConfigurationError, DataError, ModelError
from jointnmt.ops import backend
from jointnmt.ops.backend import Name
from jointnmt.search import (
    Hypothesis,
    LengthPenalty,
    SamplingConfig,
    SearchConfig,
    beam_search,
    rescore,
    sample,
    target_limits,
)
from jointnmt.search.beam import one_position
from jointnmt.search.beam_state import BeamState, rows_to_keep
from jointnmt.search.rules import Rules
from jointnmt.search.scoring import best
from jointnmt.text.special import bos_id, eos_id, pad_id, unk_id
from support.table_model import Row, TableModel

SOURCES = [[5, 4, eos_id], [4, eos_id], [5, 5, 4, 6, eos_id], [6, 4, 5, eos_id]]


def up_to(length: int, **settings: float) -> SearchConfig:
    """A configuration with the same limit for every sentence."""
    return SearchConfig.model_validate({"max_length_factor": 0.0, "max_length_offset": length, **settings})


def enumerate_all(model: TableModel, source: list[int], limit: int, length_penalty: float) -> list[Hypothesis]:
    """Every translation of at most `limit` tokens, best first, scored one by one without any search."""
    words = [token for token in range(model.vocabulary) if token not in (pad_id, bos_id, eos_id)]
    found = []
    for length in range(limit):
        for ids in itertools.product(words, repeat=length):
            prefixes = [(bos_id, *ids[:t]) for t in range(length + 1)]
            tokens = [
                model.logits(tuple(source), prefix).log_softmax(-1)[token].item()
                for prefix, token in zip(prefixes, (*ids, eos_id), strict=True)
            ]
            total = sum(tokens)
            score = total / (length + 1) ** length_penalty  # the end mark counts
            found.append(Hypothesis(ids, tuple(tokens), score, total, complete=length + 1 < limit))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds(seed: int, length_penalty: float) -> None:
    model = TableModel(vocabulary=6, seed=seed)
    space = 1 + 3 + 9 + 27
    config = up_to(4, beam_size=space, length_penalty=length_penalty)
    found = beam_search(model, pad_rows(SOURCES), config, num_best=space)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        expected = enumerate_all(model, source, 4, length_penalty)
        assert len(expected) == space
        assert [each.ids for each in hypotheses] == [each.ids for each in expected]
        assert [each.complete for each in hypotheses] == [each.complete for each in expected]
        assert [each.score for each in hypotheses] == pytest.approx([each.score for each in expected], abs=1e-6)


def slow_beam_search(model: TableModel, source: list[int], limit: int, size: int) -> list[Hypothesis]:
    """The rules of `beam_search` in plain Python, one sentence at a time, length penalty 1."""
    live: list[tuple[tuple[int, ...], list[float]]] = [((), [])]
    found: list[Hypothesis] = []
    for position in range(limit):
        options = []
        for ids, tokens in live:
            values = model.logits(tuple(source), (bos_id, *ids)).log_softmax(-1).tolist()
            allowed = (
                [eos_id] if position == limit - 1 else [t for t in range(len(values)) if t not in (pad_id, bos_id)]
            )
            options += [((*ids, token), [*tokens, values[token]]) for token in allowed]
        options = sorted(options, key=lambda option: -sum(option[1]))[: 2 * size]
        for ids, tokens in options[:size]:
            if ids[-1] == eos_id and len(found) < size:
                found.append(Hypothesis.scored(ids[:-1], tokens, LengthPenalty(1.0), limit))
        live = [option for option in options if option[0][-1] != eos_id][:size]
        if len(found) == size:
            break
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_follows_the_rules_written_out_slowly(size: int) -> None:
    for seed in range(5):
        model = TableModel(vocabulary=9, seed=seed)
        config = SearchConfig(beam_size=size, max_length_factor=1.5, max_length_offset=2)
        found = beam_search(model, pad_rows(SOURCES), config, num_best=size)
        limits = target_limits(pad_rows(SOURCES), config)
        for source, limit, hypotheses in zip(SOURCES, limits, found, strict=True):
            expected = slow_beam_search(model, source, limit, size)
            assert [(each.ids, each.complete) for each in hypotheses] == [
                (each.ids, each.complete) for each in expected
            ]


def test_a_beam_of_one_is_greedy() -> None:
    model = TableModel(vocabulary=12, seed=3)
    found = beam_search(model, pad_rows(SOURCES), up_to(9, beam_size=1))
    for source, [hypothesis] in zip(SOURCES, found, strict=True):
        ids: list[int] = []
        while len(ids) < 8:
            values = model.logits(tuple(source), (bos_id, *ids))
            values[[pad_id, bos_id]] = -torch.inf
            if (token := int(values.argmax())) == eos_id:
                break
            ids.append(token)
        assert hypothesis.ids == tuple(ids)


def test_scores_are_those_of_rescoring() -> None:
    model = TableModel(vocabulary=10, seed=1)
    found = beam_search(model, pad_rows(SOURCES), SearchConfig(beam_size=4, max_length_offset=2), num_best=4)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        targets = [each.ids for each in hypotheses]
        batch = Batch.collate([source[:-1]] * len(targets), targets)
        for hypothesis, (tokens, _) in zip(hypotheses, rescore(model, batch), strict=True):
            assert len(tokens) == len(hypothesis.ids) + 1
            assert hypothesis.token_log_probabilities == pytest.approx(tokens, abs=1e-5)
            assert hypothesis.log_probability == pytest.approx(sum(tokens), abs=1e-5)
            assert hypothesis.score == pytest.approx(sum(tokens) / len(tokens), abs=1e-5)


def test_hypotheses_are_distinct_and_best_first() -> None:
    for seed in range(5):
        found = beam_search(TableModel(9, seed), pad_rows(SOURCES), SearchConfig(beam_size=5), num_best=5)
        for hypotheses in found:
            assert len({each.ids for each in hypotheses}) == len(hypotheses) == 5
            assert [each.score for each in hypotheses] == sorted((each.score for each in hypotheses), reverse=True)


def test_a_translation_does_not_depend_on_its_batch() -> None:
    model = TableModel(vocabulary=9, seed=4)
    config = SearchConfig(beam_size=3, max_length_offset=3)
    together = beam_search(model, pad_rows(SOURCES), config, num_best=3)
    backwards = beam_search(model, pad_rows(SOURCES[::-1]), config, num_best=3)[::-1]
    alone = [beam_search(model, pad_rows([source]), config, num_best=3)[0] for source in SOURCES]
    assert together == alone == backwards


def test_finished_sentences_leave_and_every_other_keeps_its_places_side_by_side() -> None:
    model = TableModel(vocabulary=9, seed=4)
    sources = [[4 + n % 5] * (n % 7 + 1) + [eos_id] for n in range(12)]
    beam_search(model, pad_rows(sources), SearchConfig(beam_size=3, max_length_offset=3))
    counts = [len(rows) // 3 for rows in model.seen]
    assert counts[0] == 12
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 3, "the sentences of this test end at different positions"
    before: list[Row] = []
    for rows in model.seen:
        assert all(len({source for source, _ in rows[first : first + 3]}) == 1 for first in range(0, len(rows), 3))
        left = len(before) - len(rows[::3])
        moved = [row for row, (source, _) in enumerate(rows[::3]) if before and source != before[row][0]]
        assert not before or len(moved) <= left, "no more sentences move than have left"
        before = rows[::3]


@pytest.mark.parametrize(
    ("keep", "rows"),
    [
        ([True, True, True], [0, 1, 2]),
        ([False, True, True], [2, 1]),
        ([True, False, False, True, True], [0, 4, 3]),
        ([True, True, False, False], [0, 1]),
        ([False, False], []),
    ],
)
def test_the_last_rows_move_into_the_holes(keep: list[bool], rows: list[int]) -> None:
    assert rows_to_keep(keep) == rows


def test_at_the_limit_only_the_end_mark_is_allowed_and_costs_what_it_costs() -> None:
    model = TableModel(vocabulary=8, seed=0)
    endless = model.logits

    def never_ending(source: tuple[int, ...], prefix: tuple[int, ...]) -> torch.Tensor:
        values = endless(source, prefix)
        values[eos_id] = -20.0
        return values

    model.logits = never_ending  # type: ignore[method-assign]
    config = SearchConfig(beam_size=2, max_length_factor=1.2, max_length_offset=1)
    limits = target_limits(pad_rows(SOURCES), config)
    assert limits == [4, 3, 7, 5]
    for limit, [hypothesis] in zip(limits, beam_search(model, pad_rows(SOURCES), config), strict=True):
        assert len(hypothesis.ids) + 1 == limit
        assert not hypothesis.complete
        assert hypothesis.token_log_probabilities[-1] < -15


def test_limits_count_real_tokens_and_are_at_least_one() -> None:
    source = pad_rows([[4] * 99 + [eos_id], [4, eos_id]])
    assert target_limits(source, SearchConfig(max_length_factor=0.29, max_length_offset=0)) == [29, 1]
    assert target_limits(source, SearchConfig()) == [130, 12]


def test_a_prefix_begins_the_translation_and_its_log_probability_counts() -> None:
    model = TableModel(vocabulary=9, seed=2)
    prefixes = [[8, 7], [], [unk_id], [4, 5, 6]]
    found = beam_search(model, pad_rows(SOURCES), SearchConfig(beam_size=3), prefixes, num_best=3)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert all(each.ids[: len(prefix)] == tuple(prefix) for each in hypotheses)
    batch = Batch.collate([source[:-1] for source in SOURCES], [each[0].ids for each in found])
    for [best_one, *_], (tokens, _) in zip(found, rescore(model, batch), strict=True):
        assert best_one.token_log_probabilities == pytest.approx(tokens, abs=1e-5)


def test_a_prefixed_search_equals_enumeration_of_what_begins_so() -> None:
    model = TableModel(vocabulary=6, seed=2)
    expected = [each for each in enumerate_all(model, SOURCES[0], 4, 1.0) if each.ids[:1] == (5,)]
    [found] = beam_search(model, pad_rows(SOURCES[:1]), up_to(4, beam_size=len(expected)), [[5]], len(expected))
    assert [each.ids for each in found] == [each.ids for each in expected]


def test_a_prefix_beyond_the_limit_is_an_error() -> None:
    model = TableModel(vocabulary=9)
    beam_search(model, pad_rows(SOURCES), up_to(4), [[4, 4, 4], [], [], []])
    with pytest.raises(DataError, match=r"sentence 1: .* has 4 pieces, .* at most 4 tokens"):
        beam_search(model, pad_rows(SOURCES), up_to(4), [[], [4, 4, 4, 4], [], []])
    with pytest.raises(ValueError, match="2 prefixes for 4 sentences"):
        beam_search(model, pad_rows(SOURCES), up_to(4), [[], []])
    with pytest.raises(ValueError, match="a negative id"):
        beam_search(model, pad_rows(SOURCES), up_to(4), [[], [4, -1], [], []])
    with pytest.raises(ValueError, match="end or padding mark"):
        beam_search(model, pad_rows(SOURCES), up_to(4), [[], [4, eos_id], [], []])


def test_unknown_pieces_can_be_forbidden_and_marks_never_occur() -> None:
    model = TableModel(vocabulary=6, seed=1)
    free = beam_search(model, pad_rows(SOURCES), up_to(4, beam_size=8), num_best=8)
    assert any(unk_id in each.ids for hypotheses in free for each in hypotheses)
    assert not any({pad_id, bos_id, eos_id} & set(each.ids) for hypotheses in free for each in hypotheses)
    config = up_to(4, beam_size=15, allow_unknown=False)
    for source, hypotheses in zip(SOURCES, beam_search(model, pad_rows(SOURCES), config, num_best=15), strict=True):
        expected = [each for each in enumerate_all(model, source, 4, 1.0) if unk_id not in each.ids]
        assert [each.ids for each in hypotheses] == [each.ids for each in expected]
        assert hypotheses[0].score == pytest.approx(expected[0].score, abs=1e-6), "bans do not rescale"


def test_a_space_smaller_than_the_beam_gives_fewer_hypotheses() -> None:
    [found] = beam_search(TableModel(vocabulary=5), pad_rows([[4, eos_id]]), up_to(2, beam_size=9), num_best=9)
    assert sorted(each.ids for each in found) == [(), (3,), (4,)]


def test_no_sentences_give_no_translations() -> None:
    assert beam_search(TableModel(vocabulary=5), torch.zeros((0, 3), dtype=torch.long), SearchConfig()) == []


def test_wrong_use_is_refused() -> None:
    model = TableModel(vocabulary=6)
    with pytest.raises(ConfigurationError, match="num_best is 6, but beam_size is 5"):
        beam_search(model, pad_rows(SOURCES), SearchConfig(beam_size=5), num_best=6)
    with pytest.raises(ConfigurationError, match="num_best is 0, but must be at least 1"):
        beam_search(model, pad_rows(SOURCES), SearchConfig(), num_best=0)
    model.train()
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        beam_search(model, pad_rows(SOURCES), SearchConfig())
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        rescore(model, Batch.collate([[4]], [[4]]))


def test_a_model_of_which_a_part_is_in_training_is_refused() -> None:
    """A layer that was switched to training mode by itself, or inserted later."""
    model = TableModel(vocabulary=6)
    model.part = torch.nn.Dropout(0.1)
    for refused in (
        lambda: beam_search(model, pad_rows(SOURCES), SearchConfig()),
        lambda: rescore(model, Batch.collate([[4]], [[4]])),
    ):
        with pytest.raises(ValueError, match=r"model\.eval\(\)"):
            refused()
    assert rescore(model.eval(), Batch.collate([[4]], [[4]]))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ([pad_id, pad_id, pad_id], "source 1 of the batch has no tokens"),
        ([pad_id, 4, eos_id], "source 1 of the batch has padding before a token"),
        ([4, pad_id, eos_id], "source 1 of the batch has padding before a token"),
    ],
)
def test_a_source_without_tokens_or_with_padding_before_one_is_refused(wrong: list[int], expected: str) -> None:
    source = torch.tensor([[5, 4, eos_id], wrong])
    with pytest.raises(ValueError, match=expected):
        beam_search(TableModel(vocabulary=6), source, SearchConfig())
    with pytest.raises(ValueError, match="source 0 of the batch has no tokens"):
        beam_search(TableModel(vocabulary=6), source[:, :0], SearchConfig())


def test_a_model_that_gives_no_numbers_is_an_error() -> None:
    model = TableModel(vocabulary=6, scale=float("nan"))
    with pytest.raises(ModelError, match="not a number"):
        beam_search(model, pad_rows(SOURCES), SearchConfig())
    with pytest.raises(ModelError, match="not a number"):
        rescore(model, Batch.collate([[4]], [[4]]))


def test_a_sentence_without_any_translation_is_an_error() -> None:
    """Not an empty translation of probability 1, nor NaN: a rule of the model forbids the prefix."""

    class Without4(TableModel):
        def logits(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> Tensor:
            return super().logits(source, prefix).index_fill(0, torch.tensor(4), -torch.inf)

    model, sources = Without4(vocabulary=6), pad_rows(SOURCES[:2])
    with pytest.raises(ModelError, match="allows no translation"):
        beam_search(model, sources, SearchConfig(), prefixes=[[], [5, 4]])
    generators = [torch.Generator() for _ in range(2)]
    with pytest.raises(ModelError, match="allows no translation"):
        sample(model, sources, SamplingConfig(max_length_offset=9), generators, prefixes=[[], [5, 4]])


@pytest.mark.parametrize("kernels", ["native", "plain"])
def test_equal_continuations_are_taken_in_order_of_hypothesis_and_id(kernels: Name) -> None:
    beams = BeamState.begin(1, 2, filled=2)
    logits = torch.zeros(2, 6)
    logits[1, 5] = 1.0  # and the others of this hypothesis less probable than those of the first
    rules = Rules(limits=(9,), prefixes=((),), banned=())
    with backend(kernels):
        found = one_position(beams, logits, rules, 0).candidates
    assert found.rows.tolist() == [[1, 0, 0, 0]]
    assert found.ids.tolist() == [[5, 0, 1, 2]]


@pytest.mark.parametrize("kernels", ["native", "plain"])
def test_best_takes_the_first_of_equal_values(kernels: Name) -> None:
    with backend(kernels):
        check_best()


def check_best() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0, 5.0]])
    assert best(values, 3)[1].tolist() == [[1, 3, 2], [5, 0, 1]]
    assert best(values, 9)[1].tolist() == [[1, 3, 2, 4, 5, 0], [5, 0, 1, 2, 3, 4]]
    random = torch.randint(0, 40, (50, 300)).float()
    assert torch.equal(best(random, 10)[1], random.sort(dim=-1, descending=True, stable=True).indices[:, :10])
