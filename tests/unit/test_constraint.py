"""Constraints of one's own in beam search and sampling."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from jointnmt.data.batch import Batch, pad_rows
from jointnmt.errors import ModelError
from jointnmt.models import TranslationModel
from jointnmt.models.ensemble import Ensemble
from jointnmt.ops import backend
from jointnmt.ops.backend import Name
from jointnmt.search import (
    Constraint,
    Hypothesis,
    SamplingConfig,
    SearchConfig,
    beam_search,
    rescore,
    sample,
    sentence_generator,
)
from jointnmt.text.special import eos_id
from jointnmt.translator import Translator
from support.families import VOCABULARY, tiny_model
from support.table_model import TableModel
from support.tiny_run import write_run

SOURCES = [[5, 4, eos_id], [4, eos_id], [5, 5, 4, 5, eos_id], [5, 4, 5, eos_id]]


def without(piece: int) -> Constraint:
    """Bans a piece, in place."""

    def constraint(ids: Tensor, log_probabilities: Tensor) -> Tensor:
        log_probabilities[:, piece] = -torch.inf
        return log_probabilities

    return constraint


def without_repeats(ids: Tensor, log_probabilities: Tensor) -> Tensor:
    """Bans the last piece, in a new tensor."""
    last = torch.zeros_like(log_probabilities, dtype=torch.bool)
    return log_probabilities.masked_fill(last.scatter_(1, ids[:, -1:], True), -torch.inf)


def allows(constraint: Constraint, ids: tuple[int, ...], begin: int = 0) -> bool:
    """Whether a constraint allows the pieces from `begin` on."""
    every = torch.tensor([ids], dtype=torch.long)
    return all(
        constraint(every[:, :place], torch.zeros(1, VOCABULARY))[0, ids[place]] == 0 for place in range(begin, len(ids))
    )


def small(variant: str) -> TranslationModel:
    return tiny_model(variant, embed_dim=16, ffn_dim=32).float()  # sizes for which there are kernels


def translated(
    model: TranslationModel, kind: str, constraint: Constraint | None, **more: object
) -> list[list[Hypothesis]]:
    """Three translations of each source, as found or drawn."""
    sources = more.pop("sources", SOURCES)
    assert isinstance(sources, list)
    batch, limit = pad_rows(sources), {"max_length_offset": 4}
    if kind == "beam":
        return beam_search(model, batch, SearchConfig(beam_size=3, **limit), num_best=3, constraint=constraint, **more)  # type: ignore[arg-type]
    generators = [sentence_generator(0, SOURCES.index(source)) for source in sources]
    return sample(model, batch, SamplingConfig(**limit), generators, num_samples=3, constraint=constraint, **more)  # type: ignore[arg-type]


def check_rescored(model: TranslationModel, found: list[list[Hypothesis]]) -> None:
    for source, hypotheses in zip(SOURCES, found, strict=True):
        batch = Batch.collate([source[:-1]] * len(hypotheses), [each.ids for each in hypotheses])
        for hypothesis, (tokens, _) in zip(hypotheses, rescore(model, batch), strict=True):
            assert hypothesis.token_log_probabilities == pytest.approx(tokens, abs=1e-4)
            assert hypothesis.score == pytest.approx(sum(tokens) / len(tokens), abs=1e-4)


@pytest.mark.parametrize("constraint", [without(4), without_repeats])
def test_a_beam_as_wide_as_the_space_finds_all_that_is_allowed(constraint: Constraint) -> None:
    """With the scores that they have without the constraint."""
    model, space = TableModel(vocabulary=6), 1 + 3 + 9 + 27
    config = SearchConfig(beam_size=space, max_length_factor=0, max_length_offset=4)
    every = beam_search(model, pad_rows(SOURCES), config, num_best=space)
    found = beam_search(model, pad_rows(SOURCES), config, num_best=space, constraint=constraint)
    for hypotheses, left in zip(every, found, strict=True):
        assert left == [each for each in hypotheses if allows(constraint, each.ids)] != hypotheses


@pytest.mark.parametrize("kind", ["beam", "sampling"])
@pytest.mark.parametrize("kernels", ["native", "plain"])
@pytest.mark.parametrize("name", ["transformer-pre", "reformer-fast", "transformer-pre+reformer-base"])
def test_scores_are_those_of_rescoring(name: str, kind: str, kernels: Name) -> None:
    with backend(kernels):
        model: TranslationModel = Ensemble(map(small, name.split("+"))) if "+" in name else small(name)
        free = translated(model, kind, None)
        assert translated(model, kind, lambda ids, log_probabilities: log_probabilities) == free
        for constraint in (without(free[0][0].ids[0]), without_repeats):
            found = translated(model, kind, constraint)
            check_rescored(model, found)
            assert found != free
            assert all(allows(constraint, each.ids) for hypotheses in found for each in hypotheses)
            for source, hypotheses in zip(SOURCES, found, strict=True):
                [alone] = translated(model, kind, constraint, sources=[source])
                assert [each.ids for each in alone] == [each.ids for each in hypotheses]


@pytest.mark.parametrize("kind", ["beam", "sampling"])
def test_it_is_asked_for_the_hypotheses_that_search_extends(kind: str) -> None:
    """With their own tokens, however they were reordered; not where there is no choice."""
    model, lengths = TableModel(vocabulary=7, seed=1), []

    def check(ids: Tensor, log_probabilities: Tensor) -> Tensor:
        prefixes = {prefix[1:] for _, prefix in model.seen[-1]}
        assert (
            prefixes.issuperset(map(tuple, ids.tolist())) and eos_id not in ids and len(ids) == len(log_probabilities)
        )
        expected = {model.logits(*row).log_softmax(-1).sum().item() for row in model.seen[-1]}
        assert all(min(abs(row.sum().item() - each) for each in expected) < 1e-3 for row in log_probabilities)
        lengths.append((ids.shape[1], len(ids)))
        return log_probabilities

    prefixes = [[4, 4], [], [4, 4, 5], [4]]
    found = translated(model, kind, check, prefixes=prefixes)
    assert found == translated(model, kind, None, prefixes=prefixes)
    assert lengths[0] == (0, 1 if kind == "beam" else 3)  # of the only sentence without a prefix
    assert lengths[1][0] == 1 and max(length for length, _ in lengths) < 4 + 1.2 * 5 - 1
    for constraint in (without(4), without_repeats):
        found = translated(model, kind, constraint, prefixes=prefixes)
        check_rescored(model, found)
        for prefix, hypotheses in zip(prefixes, found, strict=True):
            assert all(list(each.ids[: len(prefix)]) == prefix for each in hypotheses)
            assert all(allows(constraint, each.ids, len(prefix)) for each in hypotheses)


def test_another_change_counts_in_scores() -> None:
    model = TableModel(vocabulary=7)

    def preferring(ids: Tensor, log_probabilities: Tensor) -> Tensor:
        return log_probabilities + torch.nn.functional.one_hot(torch.tensor(5), 7)

    for kind in ("beam", "sampling"):
        for source, hypotheses in zip(SOURCES, translated(model, kind, preferring), strict=True):
            batch = Batch.collate([source[:-1]] * len(hypotheses), [each.ids for each in hypotheses])
            for hypothesis, (tokens, _) in zip(hypotheses, rescore(model, batch), strict=True):
                assert hypothesis.log_probability == pytest.approx(sum(tokens) + hypothesis.ids.count(5), abs=1e-5)


@pytest.mark.parametrize("kind", ["beam", "sampling"])
def test_what_a_constraint_may_not_return(kind: str) -> None:
    model = TableModel(vocabulary=7)
    rows = 4 if kind == "beam" else 12
    expected = rf"should return torch.float32 \[{rows}, 7\]"
    for wrong, told in [
        (lambda ids, values: None, "returns None"),
        (lambda ids, values: values[:, :6], r"float32 \[\d+, 6\]"),
        (lambda ids, values: values[0], r"float32 \[7\]"),
        (lambda ids, values: values.double(), "float64"),
    ]:
        with pytest.raises(ValueError, match=f"{told}.*{expected}"):
            translated(model, kind, wrong)
    with pytest.raises(ModelError, match=r"rule of one's own.*NaN"):
        translated(model, kind, lambda ids, values: values * torch.nan)
    with pytest.raises(ModelError, match="a constraint forbids every token"):
        translated(model, kind, lambda ids, values: values.fill_(-torch.inf))


def test_a_translator_takes_a_constraint(tmp_path: Path) -> None:
    translator = Translator.load(write_run(tmp_path / "run"), "cpu")
    target, texts = translator.segmentation.target, ["der Hund sieht die Katze .", "", "die Katze hört"]
    for search in ({}, {"sample": True, "seed": 3}):
        first, *_ = translator.translations(texts, **search)
        banned = target.encode_ids(first.text)[0]

        def constraint(ids: Tensor, log_probabilities: Tensor, banned: int = banned) -> Tensor:
            return log_probabilities.index_fill(1, torch.tensor(banned), -torch.inf)

        found = translator.translations(texts, constraint=constraint, **search)
        assert translator.translate(texts, constraint=constraint, **search) == [each.text for each in found]
        assert first.text.split()[0] not in found[0].text.split() and first.text and found[0].text
        pieces = [" ".join(each.candidates[0].tokens[:-1]) if each.candidates else "" for each in found]
        scored = translator.score_stream(texts, pieces, pieces=True)
        expected = [each.candidates[0].log_probability if each.candidates else 0 for each in found]
        assert [each.log_probability for each in scored] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(TypeError, match="constraint is 4, but must be a function"):
        translator.translate(texts, constraint=4)
