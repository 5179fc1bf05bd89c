"""Several models as one: their mean, search over it, and its states."""

from __future__ import annotations

import itertools

import pytest
import torch

from jointnmt.data.batch import Batch, pad_rows
from jointnmt.errors import ConfigurationError
from jointnmt.models import AttentionMaps
from jointnmt.models.ensemble import Ensemble, mean_of_probabilities
from jointnmt.search import Hypothesis, LengthPenalty, SamplingConfig, SearchConfig, beam_search, rescore, sample
from jointnmt.search.sampling import sentence_generator
from jointnmt.text.special import bos_id, eos_id
from support.families import VOCABULARY, sources, target_inputs, tiny_model
from support.table_model import TableModel

SOURCES = [[5, 4, eos_id], [4, eos_id], [5, 5, 4, 5, eos_id]]
MIXED = ("transformer-fusion", "reformer-base", "reformer-fast-shortcuts")


def members(*names: str) -> Ensemble:
    return Ensemble(map(tiny_model, names or MIXED))


def test_its_probabilities_are_the_mean_of_the_members() -> None:
    ensemble, source, target = members(), sources([4, 2, 6]), target_inputs([3, 5, 2])
    found = ensemble(source, target).softmax(-1)
    each = torch.stack([member(source, target).softmax(-1) for member in ensemble.members])
    assert torch.allclose(found, each.mean(0), atol=1e-9)
    assert not torch.allclose(found, each.log().mean(0).softmax(-1), atol=1e-3), "the mean of logarithms is another"


def test_what_it_returns_is_normalised_already() -> None:
    ensemble, source, target = members(), sources([4, 2]), target_inputs([3, 5])
    assert torch.allclose(ensemble(source, target).logsumexp(-1), torch.zeros(2, 5, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("name", MIXED)
def test_an_ensemble_of_one_is_the_model_to_the_bit(name: str) -> None:
    model, source, target = tiny_model(name), sources([4, 2, 6]), target_inputs([3, 5, 2])
    assert torch.equal(Ensemble([model])(source, target), model(source, target))
    config = SearchConfig(beam_size=3)
    assert beam_search(Ensemble([model]), source, config, num_best=3) == beam_search(model, source, config, num_best=3)


def test_equal_members_are_the_model() -> None:
    model, source, target = tiny_model("reformer-base"), sources([4, 2]), target_inputs([3, 5])
    found = Ensemble([model, tiny_model("reformer-base")])(source, target)
    assert torch.allclose(found, model(source, target).log_softmax(-1), atol=1e-12)


def test_tiny_and_impossible_probabilities_have_a_mean() -> None:
    log = torch.tensor([[-200.0, -300.0, -torch.inf, 0.0]]).log_softmax(-1)
    other = torch.tensor([[-torch.inf, -200.0, -torch.inf, 0.0]])
    found = mean_of_probabilities([log, other, other])
    expected = [-200 - torch.tensor(3.0).log(), -200 + torch.tensor(2 / 3).log(), -torch.inf, 0.0]
    assert found[0].tolist() == pytest.approx([float(value) for value in expected])
    assert mean_of_probabilities([log, torch.full_like(log, torch.nan)]).isnan().all()


@pytest.mark.parametrize("seed", range(2))
def test_beam_search_over_it_finds_what_enumeration_finds(seed: int) -> None:
    tables = [TableModel(vocabulary=6, seed=3 * seed + number) for number in range(3)]
    targets = [ids for length in range(4) for ids in itertools.product((3, 4, 5), repeat=length)]
    config = SearchConfig(beam_size=len(targets), max_length_factor=0, max_length_offset=4)
    found = beam_search(Ensemble(tables), pad_rows(SOURCES), config, num_best=len(targets))
    for source, hypotheses in zip(SOURCES, found, strict=True):
        every = []
        for ids in targets:
            prefixes = [(bos_id, *ids[:t]) for t in range(len(ids) + 1)]
            tokens = [
                torch.stack([table.logits(tuple(source), prefix).softmax(-1)[token] for table in tables]).mean().log()
                for prefix, token in zip(prefixes, (*ids, eos_id), strict=True)
            ]
            values = [value.item() for value in tokens]
            every.append(Hypothesis.scored(ids, values, LengthPenalty(1.0), 4))
        expected = sorted(every, key=lambda each: -each.score)
        assert [each.ids for each in hypotheses] == [each.ids for each in expected]
        assert [each.score for each in hypotheses] == pytest.approx([each.score for each in expected], abs=1e-5)


def test_cached_decoding_equals_rescoring_whatever_beams_and_sentences_move() -> None:
    ensemble, lengths = members(), [4, 2, 6, 3, 1]
    source = sources(lengths)
    ids = [row[: length - 1] for row, length in zip(source.tolist(), lengths, strict=True)]
    found = beam_search(ensemble, source, SearchConfig(beam_size=4, max_length_offset=4), [[], [7], [], [], []], 4)
    generators = [sentence_generator(0, number) for number in range(len(lengths))]
    found += sample(ensemble, source, SamplingConfig(), generators, num_samples=2)
    assert len({len(each[0].ids) for each in found}) > 2, "sentences of this test leave at different positions"
    for sentence, hypotheses in zip([*ids, *ids], found, strict=True):
        batch = Batch.collate([sentence] * len(hypotheses), [each.ids for each in hypotheses])
        for each, scored in zip(hypotheses, rescore(ensemble, batch), strict=True):
            assert each.token_log_probabilities == pytest.approx(scored.log_probabilities, abs=1e-5)


def test_members_may_read_sources_of_their_own() -> None:
    one, two = tiny_model("transformer-pre"), tiny_model("reformer-base")
    first, second, target = sources([4, 2], seed=1), sources([6, 3], seed=8), target_inputs([3, 5])
    ensemble = Ensemble([one, two]).reading([first, second])
    expected = (one(first, target).softmax(-1) + two(second, target).softmax(-1)) / 2
    assert torch.allclose(ensemble(first, target).exp(), expected, atol=1e-9)
    [[hypothesis], _] = beam_search(ensemble, first, SearchConfig(beam_size=2))
    tokens = torch.tensor([[bos_id, *hypothesis.ids]])
    alone = Ensemble([one, two]).reading([first[:1], second[:1]])(first[:1], tokens)[0]
    chosen = alone.gather(-1, torch.tensor([*hypothesis.ids, eos_id]).unsqueeze(-1)).squeeze(-1)
    assert hypothesis.token_log_probabilities == pytest.approx(chosen.tolist(), abs=1e-5)
    with pytest.raises(ValueError, match="1 sources for 2 models"):
        Ensemble([one, two]).reading([first])
    with pytest.raises(ValueError, match="no mean alignment"):
        ensemble(first, target, AttentionMaps())


def test_its_alignment_is_the_mean_and_other_weights_are_left_out() -> None:
    ensemble, source, target = members(), sources([4, 2]), target_inputs([3, 5])
    each = []
    for member in ensemble.members:
        member(source, target, maps := AttentionMaps())
        each.append(maps.alignment)
    ensemble(source, target, found := AttentionMaps())
    assert torch.allclose(found.alignment, sum(each) / 3)
    assert not found.cross and not found.source and not found.gates
    assert not ensemble.has_shortcuts


def test_members_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs at least one model"):
        Ensemble([])
    with pytest.raises(ConfigurationError, match=r"different devices \(cpu, meta\)"):
        Ensemble([tiny_model("reformer-base"), tiny_model("reformer-base").to("meta")])
    with pytest.raises(ConfigurationError, match=f"vocabularies of {VOCABULARY} and 6"):
        Ensemble([tiny_model("reformer-base"), TableModel(6)])(sources([2]), target_inputs([2]))


def test_it_is_for_inference() -> None:
    model = tiny_model("reformer-base").train()
    ensemble = Ensemble([model])
    assert model.training, "what is made of a model leaves it as it was"
    with pytest.raises(ValueError, match="in training mode"):
        beam_search(ensemble, torch.tensor([[4, 5, eos_id]]), SearchConfig())
    assert not Ensemble([model.eval()]).training
