"""Several processes train as one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from jointnmt.runs.weights import read_weights
from support.tiny import tiny_recipe, write_corpus

COMPARED = {"nll", "loss", "perplexity", "gradient_norm", "target_tokens", "sentences", "padding"}
"""Of the records of a log."""


def run(*command: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run([sys.executable, "-m", *command], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_two_processes_give_the_losses_and_weights_of_one(tmp_path: Path) -> None:
    """To rounding, with dropout; some updates hold a single batch of few sentences, some several."""
    write_corpus(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    # Some gradients are zero but for rounding (those of key biases), and a small epsilon would let Adam blow them up.
    changes = {"model__dropout": 0.3, "training__log_every": 1, "training__optimizer": {"epsilon": 1e-3}}
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path, **changes)))
    one, two = tmp_path / "one", tmp_path / "two"
    run("jointnmt", "train", str(recipe), "--out", str(one))
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "jointnmt")
    run(*torchrun, "train", str(recipe), "--out", str(two))

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


def test_processes_agree_on_a_measured_precision(tmp_path: Path) -> None:
    """Each would measure something else; and measuring must end in all of them after the same update."""
    write_corpus(tmp_path)
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path, training__precision="auto", training__max_updates=4)))
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "jointnmt")
    run(*torchrun, "train", str(recipe), "--out", str(out))
    chosen = yaml.safe_load((out / "experiment.yaml").read_text(encoding="utf-8"))["training"]["precision"]
    assert chosen in ("float32", "bfloat16")
