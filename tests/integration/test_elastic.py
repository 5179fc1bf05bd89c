"""Elastic torchrun: machines come and go, and the training ends as an undisturbed one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from jointnmt.runs.weights import read_weights
from support.machines import machines, trained_to, wait_until
from support.tiny import tiny_recipe, write_corpus

UPDATES = 40
COMPARED = {"nll", "loss", "perplexity", "gradient_norm", "target_tokens", "sentences", "padding"}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Recipe of a training that saves its state after each update."""
    write_corpus(tmp_path)
    path = tmp_path / "recipe.yaml"
    settings = {"max_updates": UPDATES, "optimizer": {"epsilon": 1e-3}}  # see test_processes.py
    values = tiny_recipe(tmp_path)
    values["training"] |= settings
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def assert_alike(one: Path, other: Path) -> None:
    """Check that logs and weights are equal except for rounding."""
    logs = [
        [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        for run in (one, other)
    ]
    assert len(logs[0]) == len(logs[1]) > UPDATES / 2
    for first, second in zip(*logs, strict=True):
        assert (first["event"], first["step"]) == (second["event"], second["step"])
        for key in COMPARED & first.keys():
            assert second[key] == pytest.approx(first[key], rel=1e-4), (first["event"], first["step"], key)
    weights, others = (read_weights(run / "model.safetensors") for run in (one, other))
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, rtol=1e-4, atol=1e-5)


def test_machines_without_a_shared_file_system_come_and_go(recipe: Path, tmp_path: Path) -> None:
    """Each has a RUN directory of its own, and the one in which the training continues may get another rank."""
    alone = tmp_path / "alone"
    runs = {number: tmp_path / f"run-{number}" for number in (5, 7, 3)}
    with machines(tmp_path) as group:
        undisturbed = group.alone(recipe, alone, 1, 0)
        assert undisturbed.end() == 0, undisturbed.said.read_text()
        first, second = (group.join(recipe, runs[number], 2, number) for number in (5, 7))
        wait_until(trained_to(runs[5], 3), first)
        second.lose()
        third = group.join(recipe, runs[3], 2, 3)
        wait_until(trained_to(runs[5], 12), first)
        third.lose()
        assert first.end() == 0, first.said.read_text()
    assert_alike(runs[5], alone)
    assert not runs[7].exists() and not runs[3].exists()
