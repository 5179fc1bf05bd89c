"""Several processes train like one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from jointnmt.config import override
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.runs import checkpoint
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.log import read_records
from jointnmt.runs.weights import read_weights
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from support.commands import Commands
from support.tiny import tiny_recipe, write_corpus

COMPARED = {"nll", "loss", "perplexity", "gradient_norm", "target_tokens", "sentences", "padding"}
"""Values of a log's records that are compared."""


def train_by_two(commands: Commands, recipe: Path, out: Path, *more: str) -> None:
    for outcome in commands.train_together(recipe, out, *more):
        assert outcome.code == 0, outcome.said


def test_two_processes_give_the_losses_and_weights_of_one(commands: Commands, tmp_path: Path) -> None:
    """Equal up to rounding, with dropout; some updates have a single batch of few sentences, some several."""
    write_corpus(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    # Some gradients are zero except for rounding (those of key biases); with a small epsilon, Adam would amplify them.
    changes = {"model__dropout": 0.3, "training__log_every": 1, "training__optimizer": {"epsilon": 1e-3}}
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path, **changes)))
    one, two = tmp_path / "one", tmp_path / "two"
    train(Experiment.load(recipe), one, NoDisplay())
    train_by_two(commands, recipe, two)

    records = [
        [json.loads(line) for line in (path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        for path in (one, two)
    ]
    assert len(records[0]) == len(records[1]) > 12
    for alone, together in zip(*records, strict=True):
        assert (alone["event"], alone["step"]) == (together["event"], together["step"])
        for key in COMPARED & alone.keys():
            assert together[key] == pytest.approx(alone[key], rel=1e-5), (alone["event"], alone["step"], key)
    weights, other = read_weights(one / "model.safetensors"), read_weights(two / "model.safetensors")
    for name, tensor in weights.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-5, atol=1e-6)
    versions = json.loads((two / "versions.json").read_text(encoding="utf-8"))
    assert versions["hardware"] == "2 x CPU"


@pytest.mark.slow
def test_a_sharded_training_goes_on_from_a_whole_one_and_ends_as_it(commands: Commands, tmp_path: Path) -> None:
    """Two processes, each with half of the weights and optimiser state; some batches have a single pair."""
    write_corpus(tmp_path)
    batches = {"max_tokens": 16, "update_tokens": 64}
    changes = {"batches": batches, "training__log_every": 1, "training__optimizer": {"epsilon": 1e-3}}
    recipe = tiny_recipe(tmp_path, **changes, training__max_updates=6)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    whole, shared = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "shared")
    train(Experiment.parse(recipe, "test"), whole.path, NoDisplay())
    train(Experiment.parse(override(recipe, ["training.max_updates=2"]), "test"), shared.path, NoDisplay())
    train_by_two(commands, tmp_path / "recipe.yaml", shared.path, "--set", "training.sharded=true")

    records = [{(each["event"], each["step"]): each for each in read_records(folder.log)} for folder in (whole, shared)]
    assert records[1].keys() >= records[0].keys()
    for place, alone in records[0].items():
        for key in COMPARED & alone.keys():
            assert records[1][place][key] == pytest.approx(alone[key], rel=1e-5), (place, key)
    for one, other in ((whole.states.last, shared.states.last), (whole.model, shared.model)):
        tensors, others = checkpoint.read(one)[0], checkpoint.read(other)[0]
        assert tensors.keys() == others.keys()
        for each, tensor in tensors.items():
            torch.testing.assert_close(others[each], tensor, rtol=1e-5, atol=1e-6)


def test_processes_agree_on_a_measured_precision(commands: Commands, tmp_path: Path) -> None:
    """Each would measure other rates; and measuring must end in all of them after the same update."""
    write_corpus(tmp_path)
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path, training__precision="auto", training__max_updates=4)))
    train_by_two(commands, recipe, out)
    chosen = yaml.safe_load((out / "experiment.yaml").read_text(encoding="utf-8"))["training"]["precision"]
    assert chosen in ("float32", "bfloat16")


@pytest.mark.parametrize(
    ("told", "error", "message"), [("seed", ConfigurationError, "seed"), ("text", DataError, "training text")]
)
def test_a_process_with_another_recipe_or_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, error: type[Exception], message: str
) -> None:
    """One of the first process's answers is replaced by that of another machine."""
    write_corpus(tmp_path)
    experiment = Experiment.parse(tiny_recipe(tmp_path), origin="test")
    other = Experiment.parse({**experiment.plain(), "seed": 9}, origin="test").plain()

    def of_first(make: Callable[[], Any]) -> Any:
        value = make()
        if told == "seed":
            return other if value == experiment.plain() else value
        return "0" * 64 if isinstance(value, str) and len(value) == 64 else value

    monkeypatch.setattr("jointnmt.training.run.of_first", of_first)
    with pytest.raises(error, match=message):
        train(experiment, tmp_path / "run", NoDisplay())
