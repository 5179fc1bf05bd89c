"""Two processes that train together, one of which is killed, or which are stopped, without any effect."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jointnmt.runs.directory import RunDirectory
from support.commands import NOTHING, Commands, Fault, Outcome
from support.runs import assert_same_runs
from support.tried import SCALE, Tried


def start_both(
    commands: Commands, trained: Path, run: Path, faults: tuple[Fault, Fault] = (NOTHING, NOTHING), *more: str
) -> list[Outcome]:
    cache = {"JOINTNMT_CACHE": str(trained / "cache")}
    return commands.train_together(trained / "recipe.yaml", run, *more, faults=faults, env=cache)


@pytest.mark.slow
def test_a_training_of_two_processes_survives_the_death_of_one(
    commands: Commands, trained: Path, tmp_path: Path, tried: Tried
) -> None:
    whole, dice, failures = tmp_path / "whole", random.Random(0), list[str]()
    began = time.monotonic()
    undisturbed = start_both(commands, trained, whole)
    seconds, kills = time.monotonic() - began, 0
    assert [each.code for each in undisturbed] == [0, 0], undisturbed
    operations = undisturbed[0].operations
    faults = [(Fault(before=dice.randrange(operations // 2, operations)), NOTHING)]
    for _ in range(SCALE):
        moment = Fault(seconds=dice.uniform(0.2, 1) * seconds)
        faults += [dice.choice([(NOTHING, moment), (moment, NOTHING)])]
    for fault in faults:
        run = tmp_path / "run"
        ended = start_both(commands, trained, run, fault)
        kills += any(each.code == -signal.SIGKILL for each in ended)
        said = [
            each.said for each in ended if each.code > 0 and ("Traceback" in each.said or each.code not in (2, 3, 4, 6))
        ]
        again = start_both(commands, trained, run)
        if said or [each.code for each in again] != [0, 0]:
            failures.append(f"{fault}: {[each.code for each in ended]} {said} {again}")
        else:
            assert_same_runs(run, whole)
        shutil.rmtree(run)
    tried("kill of one of two processes of a training", kills, len(failures))
    assert not failures, "\n\n".join(failures)


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_the_training(
    commands: Commands, trained: Path, tmp_path: Path, tried: Tried
) -> None:
    """torchrun passes it on to its processes, which save; torchrun itself then resumes the training."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "jointnmt", "train", str(trained / "recipe.yaml"), "--out", str(run)]
    environment = {**os.environ, "JOINTNMT_CACHE": str(trained / "cache"), "OMP_NUM_THREADS": "1"}
    endless = ["--set", "training.max_updates=100000"]
    process = subprocess.Popen([*command, *endless], env=environment, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and RunDirectory(run).states.read() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    state = RunDirectory(run).states.read()
    assert state is not None, said
    step = state[1]["trainer"]["position"]["step"]
    assert f"stopped after update {step}, saved" in said
    end = ["--set", f"training.max_updates={step + 3}"]
    for folder in (run, whole):
        outcomes = start_both(commands, trained, folder, (NOTHING, NOTHING), *end)
        assert [each.code for each in outcomes] == [0, 0], outcomes
    assert_same_runs(run, whole)
    tried("signal to torchrun", 1, 0)
