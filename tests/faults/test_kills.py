"""A training that is killed before each of its file operations, and at random moments, without any effect.

A short tier by default; JOINTNMT_FAULTS above 1 (`make faults`) kills before every operation, and more often.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jointnmt.experiment import Experiment
from support.commands import Commands, Fault, Outcome
from support.tiny import tiny_recipe
from support.tried import SCALE, Tried

EVERY = 20 if SCALE == 1 else 1
"""Kills happen before one of so many file operations."""
KILLS = 2 if SCALE == 1 else 10 * SCALE
"""Least number of kills at random moments for each family."""

TRANSFORMER = {"family": "transformer", "encoder_layers": 1, "decoder_layers": 1}
FAST, BASE = {"num_layers": 1, "prenet_layers": 1}, {"num_layers": 1}
FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": TRANSFORMER,
    "transformer with shortcuts": {**TRANSFORMER, "shortcuts": {}},
    "reformer-fast": {"family": "reformer-fast", **FAST},
    "reformer-fast with shortcuts": {"family": "reformer-fast", **FAST, "shortcuts": {}},
    "reformer-base": {"family": "reformer-base", **BASE},
    "reformer-base with shortcuts": {"family": "reformer-base", **BASE, "shortcuts": {}},
}


def train(
    commands: Commands, corpus: Path, place: Path, fault: Fault, model: Mapping[str, Any] = TRANSFORMER
) -> Outcome:
    """Train in a folder of its own, which also has a cache."""
    sizes = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 32, "dropout": 0.1}
    changes = {"model": {**sizes, **model}, "data__cache": str(place / "cache"), "training__max_updates": 7}
    place.mkdir(exist_ok=True)
    recipe = place / "recipe.yaml"
    recipe.write_text(Experiment.parse(tiny_recipe(corpus, **changes), origin="test").to_yaml(), encoding="utf-8")
    places = [place / "run", place / "cache"]
    return commands.run("train", recipe, "--out", place / "run", places=places, fault=fault)


def weights(place: Path) -> bytes:
    return (place / "run/model.safetensors").read_bytes()


def test_a_kill_before_any_file_operation_changes_nothing(
    corpus: Path, commands: Commands, tmp_path: Path, tried: Tried
) -> None:
    whole = train(commands, corpus, tmp_path / "whole", Fault())
    assert whole.code == 0, whole.said
    assert whole.operations > 50
    failed = []
    chosen = range(0, whole.operations, EVERY)
    for number in chosen:
        place = tmp_path / f"killed-{number}"
        assert train(commands, corpus, place, Fault(before=number)).code == -signal.SIGKILL
        ended = train(commands, corpus, place, Fault())
        if ended.code != 0 or weights(place) != weights(tmp_path / "whole"):
            failed.append(number)
    tried("kill: train, before a file operation", len(chosen), len(failed))
    assert failed == []


@pytest.mark.parametrize("family", FAMILIES)
def test_kills_at_random_moments_change_no_weight(
    corpus: Path, commands: Commands, tmp_path: Path, tried: Tried, family: str
) -> None:
    model, dice, began = FAMILIES[family], random.Random(family), time.monotonic()
    assert train(commands, corpus, tmp_path / "whole", Fault(), model).code == 0
    seconds, kills, failed, number = time.monotonic() - began, 0, list[int](), 0
    while kills < KILLS:
        place, number = tmp_path / f"killed-{number}", number + 1
        for _ in range(2):
            disturbed = train(commands, corpus, place, Fault(seconds=dice.uniform(0, seconds)), model)
            kills += disturbed.code == -signal.SIGKILL
        ended = train(commands, corpus, place, Fault(), model)
        if ended.code != 0 or weights(place) != weights(tmp_path / "whole"):
            failed.append(number)
    tried("kill: train, at a random moment, each family with and without shortcuts", kills, len(failed))
    assert failed == []
