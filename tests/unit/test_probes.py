"""Probes: they learn planted information, stop, and resume from their files without a difference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from jointnmt.analysis.lexical import HeldOutText, measure_states
from jointnmt.analysis.pieces import FrequencyBins, SideText
from jointnmt.analysis.probes import Probe, ProbeConfig, ProbeTraining, round_order, train_round
from jointnmt.analysis.probing import ProbeTask, train_probes
from jointnmt.analysis.states import State
from jointnmt.errors import ConfigurationError
from jointnmt.models import TranslationModel, build_model
from jointnmt.models.transformer import TransformerConfig
from jointnmt.runs import checkpoint

VOCABULARY, WIDTH = 15, 16
EMBEDDED = State("embedding", "source", "embedding")
LAYER = State("encoder", "source", "1")
DECODED = State("decoder", "target", "1")


def small_model() -> TranslationModel:
    torch.manual_seed(3)
    config = TransformerConfig(embed_dim=WIDTH, num_heads=2, ffn_dim=16, encoder_layers=1, decoder_layers=1)
    return build_model(config, VOCABULARY, VOCABULARY).eval()


class PairList(list[Any]):
    """Sentence pairs in memory, as `Sentences`."""

    def pairs(self, indices: Any) -> list[Any]:
        return [self[index] for index in indices]


def sentence_pairs(count: int, seed: int) -> PairList:
    generator = np.random.default_rng(seed)
    return PairList(
        tuple(generator.integers(4, VOCABULARY, generator.integers(1, 9)).tolist() for _ in range(2))
        for _ in range(count)
    )


def task(**settings: Any) -> ProbeTask:
    values = {"rate": 0.01, "batch_size": 32, "max_rounds": 4, "round_sentences": 50, "dropout": 0.3, **settings}
    return ProbeTask(
        model=small_model(),
        sizes={"source": (WIDTH, VOCABULARY), "target": (WIDTH, VOCABULARY)},
        train=sentence_pairs(70, seed=1),
        stop=sentence_pairs(20, seed=2),
        config=ProbeConfig.model_validate(values),
        facts={"model": "small"},
    )


@contextmanager
def quiet(what: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


def weights(training: ProbeTraining) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in training.probe.state_dict().items()}


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def trainings_of(given: ProbeTask, *states: State) -> list[ProbeTraining]:
    return [ProbeTraining(state, (WIDTH, VOCABULARY), given.config, torch.device("cpu")) for state in states]


def test_pieces_are_recovered_from_embeddings() -> None:
    given = task(max_rounds=12, rate=0.02)
    (training,) = trainings_of(given, EMBEDDED)
    while not training.finished:
        train_round([training], given.model, given.train, given.stop)
    assert training.accuracies[0] < 0.95 < max(training.accuracies)


def planted_model() -> TranslationModel:
    """Every piece has a feature of its own, in its own state in every layer, and in no other state."""
    model = small_model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("embedding.weight"):
                parameter.copy_(3 * torch.eye(VOCABULARY, WIDTH))
            elif ".output." in name:  # no sub-layer adds anything
                parameter.zero_()
    return model


def test_pieces_of_both_sides_are_found_where_they_are_planted() -> None:
    """A probe that reads the planted features is always right about the piece at a position, not about the next one."""
    model, pairs = planted_model(), [*sentence_pairs(30, seed=4)]
    probe = Probe(WIDTH, VOCABULARY, ProbeConfig(), torch.Generator())
    with torch.no_grad():
        probe.hidden.weight.copy_(torch.eye(WIDTH))
        probe.output.weight.copy_(torch.eye(VOCABULARY, WIDTH))
    bins = FrequencyBins.of(np.arange(VOCABULARY))
    sides = {
        side: SideText([bins.of_piece[ids] for ids in rows], bins.names, [np.arange(len(ids)) for ids in rows], None)
        for side, rows in zip(("source", "target"), zip(*pairs, strict=True), strict=True)
    }
    states = [State("embedding", "source", "embedding"), LAYER, State("embedding", "target", "embedding"), DECODED]
    measured = measure_states(model, HeldOutText(pairs, sides), dict.fromkeys(states, probe), lambda _: None)  # type: ignore[arg-type]
    accuracies = {
        State(each.stack, each.side, each.layer): each.value.value
        for each in measured
        if (each.measure, each.grouping) == ("accuracy", "all")
    }
    assert accuracies == dict.fromkeys(states, 1.0)


@pytest.mark.parametrize("state", [LAYER, DECODED], ids=str)
def test_probes_of_both_sides_learn_what_is_planted(state: State) -> None:
    given = replace(task(max_rounds=6, rate=0.02), model=planted_model())
    (training,) = trainings_of(given, state)
    while not training.finished:
        train_round([training], given.model, given.train, given.stop)
    assert max(training.accuracies) > 0.99


def test_dropout_of_a_probe_leaves_out_features_while_it_learns_and_only_then() -> None:
    """An update does not change features that it does not see: half of the hidden layer, another half each time."""
    (training,) = trainings_of(task(dropout=0.5), LAYER)
    probe, ids = training.probe, torch.tensor([5])
    with torch.no_grad():
        probe.hidden.weight.zero_()
        probe.hidden.bias.fill_(1.0)
    states = torch.zeros(1, WIDTH)
    expected = probe.output.weight.sum(1)
    torch.testing.assert_close(probe(states)[0], expected)
    assert probe.hits(states, expected.argmax()[None]).tolist() == [1.0]
    training.begin_round()
    before = probe.output.weight.detach().clone()
    training.update(states, ids)
    seen = (probe.output.weight != before).any(0)
    assert 0 < seen.sum() < WIDTH
    (fresh,) = trainings_of(task(dropout=0.0), LAYER)
    before = fresh.probe.output.weight.detach().clone()
    fresh.probe.hidden.load_state_dict(probe.hidden.state_dict())
    fresh.update(states, ids)
    assert (fresh.probe.output.weight != before).any(0).all()
    dropped = torch.stack([probe(states, training.generator)[0] for _ in range(300)])
    torch.testing.assert_close(dropped.mean(0), probe(states)[0], rtol=0.1, atol=0.4)


def test_with_a_norm_the_scale_of_states_does_not_matter() -> None:
    (plain,), (normed,) = (trainings_of(task(norm=norm), LAYER) for norm in (False, True))
    states = torch.randn(5, WIDTH)
    torch.testing.assert_close(normed.probe(states), normed.probe(9 * states), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(plain.probe(states), plain.probe(9 * states), atol=0.1)


def test_nothing_is_recovered_where_nothing_is() -> None:
    given = task(max_rounds=6)
    norm = given.model.encoder.norm  # type: ignore[union-attr]
    assert isinstance(norm, nn.LayerNorm)
    nn.init.zeros_(norm.weight)  # the same state for every piece
    (training,) = trainings_of(given, LAYER)
    while not training.finished:
        train_round([training], given.model, given.train, given.stop)
    assert max(training.accuracies) < 0.25


def test_a_probe_does_not_depend_on_those_beside_it() -> None:
    given = task()
    (alone,) = trainings_of(given, LAYER)
    beside, other = trainings_of(given, LAYER, EMBEDDED)
    for _ in range(2):
        train_round([alone], given.model, given.train, given.stop)
        train_round([other, beside], given.model, given.train, given.stop)
    assert_same(weights(alone), weights(beside))
    assert alone.accuracies == beside.accuracies


def test_the_model_stays_as_it_is() -> None:
    given = task(max_rounds=1)
    before = {name: tensor.clone() for name, tensor in given.model.state_dict().items()}
    train_round(trainings_of(given, LAYER), given.model, given.train, given.stop)
    assert_same(before, dict(given.model.state_dict()))
    assert all(parameter.grad is None for parameter in given.model.parameters())


def test_a_probe_stops_after_rounds_without_gain_and_keeps_the_best() -> None:
    (training,) = trainings_of(task(patience=2, max_rounds=9), LAYER)
    with torch.no_grad():
        for accuracy, stands in ((0.1, False), (0.5, False), (0.5, False), (0.4, True)):
            assert not training.finished
            training.probe.hidden.bias.fill_(accuracy)
            training.end_round(accuracy)
            assert training.finished == stands
            training.probe.hidden.bias.fill_(9.0)
    assert training.best_round == 2
    assert training.best_probe().hidden.bias.tolist() == [0.5] * WIDTH


def test_rounds_run_through_the_whole_text_in_ever_new_order() -> None:
    given = task(round_sentences=35)
    rounds = [round_order(given.train, given.config, number).tolist() for number in range(4)]
    assert sorted(rounds[0] + rounds[1]) == sorted(rounds[2] + rounds[3]) == list(range(70))
    assert rounds[0] + rounds[1] != rounds[2] + rounds[3]


def test_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = train_probes(task(), tmp_path / "whole", quiet)
    begun: list[str] = []

    @contextmanager
    def interrupting(what: str, total: int) -> Iterator[Callable[[int], None]]:
        begun.append(what)

        def advance(done: int) -> None:
            if len(begun) == 3:
                raise KeyboardInterrupt

        yield advance

    with pytest.raises(KeyboardInterrupt):
        train_probes(task(), tmp_path / "parts", interrupting)
    # One of the files is a round behind, as after an interruption during writing.
    behind, ahead = tmp_path / "parts" / f"{LAYER}.safetensors", task(max_rounds=1)
    behind.unlink()
    train_round((late := trainings_of(task(), LAYER)), ahead.model, ahead.train, ahead.stop)
    late[0].save(behind, {**task().facts, "settings": task().config.plain()})
    resumed = train_probes(task(), tmp_path / "parts", quiet)
    assert [each.rounds for each in resumed] == [4] * len(whole)
    for first, second in zip(whole, resumed, strict=True):
        assert first.accuracies == second.accuracies
        assert_same(first.best, second.best)
        assert_same(weights(first), weights(second))


def test_finished_probes_are_kept_with_their_best_weights_and_not_trained_again(tmp_path: Path) -> None:
    first = train_probes(task(max_rounds=2), tmp_path, quiet)
    names = {f"best.{name}" for name in weights(first[0])}
    assert set(checkpoint.read(tmp_path / f"{LAYER}.safetensors")[0]) == names

    @contextmanager
    def forbidden(what: str, total: int) -> Iterator[Callable[[int], None]]:
        raise AssertionError("there is nothing left to train")
        yield

    again = train_probes(task(max_rounds=2), tmp_path, forbidden)
    for one, other in zip(first, again, strict=True):
        assert_same(one.best_probe().state_dict(), other.best_probe().state_dict())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (task(max_rounds=2), "settings.max_rounds: 1 -> 2"),
        (replace(task(max_rounds=1), facts={"model": "large"}), "large"),
    ],
)
def test_probes_of_something_else_are_refused(tmp_path: Path, other: ProbeTask, message: str) -> None:
    train_probes(task(max_rounds=1), tmp_path, quiet)
    with pytest.raises(ConfigurationError, match=message):
        train_probes(other, tmp_path, quiet)


def test_the_documentation_names_every_setting_and_its_default(repository: Path) -> None:
    page = (repository / "docs" / "probing.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\w+) \| ([\w.]+) \| ", page, re.M))
    defaults = {key: yaml.safe_load(rows.pop(key, "missing")) for key in ProbeConfig.model_fields}
    assert defaults == ProbeConfig().plain()
