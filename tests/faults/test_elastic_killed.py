"""Workers of an elastic training are killed again and again, also while they start or write: it ends all the same."""

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
from support.tried import SCALE, Tried

KILLS, WORKERS = 3 * SCALE, 3


def kill(machine: Machine, rank: int) -> None:
    """Kill a worker, as soon as there is one of this rank."""
    wait_until(lambda: len(machine.workers()) > rank, machine)
    with suppress(IndexError, psutil.NoSuchProcess):  # it has just ended by itself, as others did
        machine.workers()[rank].kill()


@pytest.mark.slow
def test_killed_workers_change_nothing(tmp_path: Path, tried: Tried) -> None:
    """By turns: after an update, while a state is being written, and at a random moment, starts included."""
    write_corpus(tmp_path)
    values = tiny_recipe(tmp_path)
    values["training"]["max_updates"] = 20 + 4 * KILLS
    recipe, run, whole = (tmp_path / name for name in ("recipe.yaml", "run", "whole"))
    recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
    dice, unfinished = random.Random(0), RunDirectory(run).checkpoints / ".last.safetensors.new"
    with machines(tmp_path) as group:
        undisturbed = group.alone(recipe, whole, WORKERS, 0)
        assert undisturbed.end() == 0, undisturbed.said.read_text()
        machine = group.alone(recipe, run, WORKERS, 2 * KILLS)
        for number in range(KILLS):
            if number % 3 == 2:
                time.sleep(dice.uniform(0, 12))
            else:
                wait_until(trained_to(run, RunDirectory(run).newest_step() + dice.randint(1, 3)), machine)
            if number % 3 == 1:
                wait_until(unfinished.exists, machine)
            kill(machine, 0 if number % 3 == 1 else dice.randrange(WORKERS))
        assert machine.end() == 0, machine.said.read_text()
        said = machine.said.read_text()
    failed = said.count("Traceback") + said.count("this is an error in jointnmt")
    tried("kill of a worker of an elastic training", KILLS, failed)
    assert not failed, said
    assert_same_runs(run, whole)
