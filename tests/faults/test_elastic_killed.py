"""Workers of an elastic training are killed repeatedly, also while they start or write; it still completes."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from jointnmt.runs.directory import RunDirectory
from support.machines import Machine, machines, trained_to, wait_until
from support.runs import assert_same_runs
from support.tiny import tiny_recipe, write_corpus
from support.tried import SCALE, Tried, long_tier

KILLS, WORKERS = 2 * SCALE, 2


def kill(machine: Machine, rank: int) -> None:
    """Kill a worker as soon as there is one of this rank."""
    wait_until(lambda: len(machine.workers()) > rank, machine)
    with suppress(IndexError, psutil.NoSuchProcess):  # it has just ended by itself, like others
        machine.workers()[rank].kill()


def recipe_of(folder: Path, updates: int) -> Path:
    """A training whose state is saved after each update."""
    write_corpus(folder)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe(folder, training__max_updates=updates)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_killed_workers_change_nothing(tmp_path: Path, tried: Tried) -> None:
    """Kills in turns: after an update, during a write of a state, and, in the long tier, at a random moment."""
    recipe, run, whole = recipe_of(tmp_path, 20 + 4 * KILLS), tmp_path / "run", tmp_path / "whole"
    dice, checkpoints = random.Random(0), RunDirectory(run).checkpoints
    with machines(tmp_path) as group:
        undisturbed = group.alone(recipe, whole, WORKERS, 0)
        assert undisturbed.end() == 0, undisturbed.said.read_text()
        machine = group.alone(recipe, run, WORKERS, 2 * KILLS)
        for number in range(KILLS):
            if number % 3 == 2:
                time.sleep(dice.uniform(0, 12))
            else:
                wait_until(trained_to(run, RunDirectory(run).states.newest_step() + dice.randint(1, 3)), machine)
            if number % 3 == 1:
                wait_until(lambda: any(checkpoints.glob(".last.safetensors.*.new")), machine)
            kill(machine, 0 if number % 3 == 1 else dice.randrange(WORKERS))
        assert machine.end() == 0, machine.said.read_text()
        said = machine.said.read_text()
    failed = said.count("Traceback") + said.count("this is an error in jointnmt")
    tried("kill of a worker of an elastic training", KILLS, failed)
    assert not failed, said
    assert_same_runs(run, whole)


@pytest.mark.slow
@long_tier
def test_a_worker_that_says_nothing_is_given_up(tmp_path: Path, tried: Tried) -> None:
    """As if its machine were cut off: the connection is open, but silent."""
    recipe, run = recipe_of(tmp_path, 30), tmp_path / "run"
    with machines(tmp_path) as group:
        machine = group.alone(recipe, run, 2, 1, "--set", "training.process_timeout=10")
        wait_until(trained_to(run, 2), machine)
        machine.workers()[1].suspend()
        assert machine.end() == 0, machine.said.read_text()
        said = machine.said.read_text()
    assert "cannot be reached" in said
    tried("a worker of an elastic training that hangs", 1, 0)
