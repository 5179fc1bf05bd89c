"""A training that is killed before each of its file operations, and at random moments: nothing of it shows.

A short tier by default; JOINTNMT_FAULTS above 1 (`make faults`) kills before every operation, and more often.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.kills import Trainings

from jointnmt.experiment import Experiment
from support.tiny import tiny_recipe

SCALE = int(os.environ.get("JOINTNMT_FAULTS", "1"))
EVERY = 20 if SCALE == 1 else 1
"""Of the file operations, one of so many is killed before."""
KILLS = 2 if SCALE == 1 else 5 * SCALE

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


@pytest.fixture(scope="module")
def trainings() -> Trainings:
    return Trainings()


def recipe(corpus: Path, cache: Path, model: Mapping[str, Any] = TRANSFORMER, updates: int = 7) -> dict[str, Any]:
    sizes = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 32, "dropout": 0.1}
    changes = {"model": {**sizes, **model}, "data__cache": str(cache), "training__max_updates": updates}
    return Experiment.parse(tiny_recipe(corpus, **changes), origin="test").plain()


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_a_kill_before_any_file_operation_changes_nothing(corpus: Path, trainings: Trainings, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    code, operations = trainings.run(recipe(corpus, tmp_path / "cache-of-whole"), whole)
    assert code == 0
    assert operations > 50
    failed = []
    chosen = range(0, operations, EVERY)
    for number in chosen:
        run, plain = tmp_path / f"run-{number}", recipe(corpus, tmp_path / f"cache-{number}")
        killed, _ = trainings.run(plain, run, kill_before=number)
        assert killed == -signal.SIGKILL
        ended, _ = trainings.run(plain, run)
        if ended != 0 or weights(run) != weights(whole):
            failed.append(number)
    print(f"kills before a file operation: {len(chosen)} of {operations} operations, {len(failed)} failed")
    assert failed == []


@pytest.mark.parametrize("family", FAMILIES)
def test_kills_at_random_moments_change_no_weight(
    corpus: Path, trainings: Trainings, tmp_path: Path, family: str
) -> None:
    plain, dice = recipe(corpus, tmp_path / "cache", FAMILIES[family]), random.Random(family)
    began = time.monotonic()
    assert trainings.run(plain, tmp_path / "whole")[0] == 0
    seconds, kills, number = time.monotonic() - began, 0, 0
    while kills < KILLS:
        run, number = tmp_path / f"run-{number}", number + 1
        for _ in range(2):
            if trainings.run(plain, run, kill_after=dice.uniform(0, seconds))[0] == -signal.SIGKILL:
                kills += 1
        assert trainings.run(plain, run)[0] == 0
        assert weights(run) == weights(tmp_path / "whole"), f"{family}, training {number}"
    print(f"kills at random moments, {family}: {kills} in {number} trainings, 0 failed")
