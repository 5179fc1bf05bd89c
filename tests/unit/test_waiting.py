"""Time that threads spin while they wait for others, which depends on the other load of the cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jointnmt import cores
from jointnmt.ops import waiting
from jointnmt.ops.waiting import ALONE, CROWDED, ENOUGH_THREADS, QUIET_INTERVALS, Waiting, seconds_without_core

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts how long threads wait for a core")


class Runtime:
    """Stand-in for the OpenMP runtime; records the teams that are formed."""

    def __init__(self) -> None:
        self.teams: list[int] = []
        self.formed = threading.Event()

    def GOMP_parallel(self, function: object, data: None, threads: int, flags: int) -> None:  # noqa: N802, as it is called
        self.teams.append(threads)
        self.formed.set()


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def watched(runtime: Runtime) -> Iterator[Waiting]:
    made = Waiting(runtime)  # type: ignore[arg-type]
    yield made
    for _ in range(QUIET_INTERVALS):
        made.decide(0, 2)


def idle_teams() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "idle-team"]


def test_beside_others_threads_spin_briefly_until_they_have_been_alone_for_a_while(
    watched: Waiting, runtime: Runtime
) -> None:
    watched.decide(2 * CROWDED - 0.01, 2)
    assert not watched.brief
    assert not idle_teams()
    watched.decide(2 * CROWDED + 0.01, 2)
    assert watched.brief
    assert runtime.formed.wait(20)
    assert runtime.teams == [len(os.sched_getaffinity(0))], "with the team that computes, more threads than cores"
    (team,) = idle_teams()
    for waited in (0, 0, 0, 2 * ALONE + 0.01, 0, 0, 0):
        watched.decide(waited, 2)
        assert watched.brief, "three quiet intervals in a row at most"
    watched.decide(0, 2)
    assert not watched.brief
    team.join(20)
    assert not team.is_alive()
    watched.decide(1, 2)
    assert watched.brief, "and again"


def test_between_the_thresholds_nothing_changes(watched: Waiting) -> None:
    between = ALONE + CROWDED  # of two threads
    for _ in range(2 * QUIET_INTERVALS):
        watched.decide(between, 2)
    assert not watched.brief
    watched.decide(1, 2)
    for _ in range(2 * QUIET_INTERVALS):
        watched.decide(between, 2)
    assert watched.brief


def test_a_single_thread_waits_for_no_other(watched: Waiting) -> None:
    watched.decide(0.9, 1)
    assert not watched.brief


def test_of_many_threads_a_few_without_a_core_are_enough(watched: Waiting) -> None:
    watched.decide(ENOUGH_THREADS * CROWDED + 0.01, 32)
    assert watched.brief


@LINUX
def test_linux_counts_how_long_a_thread_has_no_core() -> None:
    """Two threads that compute on one core, outside of Python's lock, each wait for half of the time."""

    def compute() -> None:
        os.sched_setaffinity(0, {core})  # of this thread
        numbers = torch.ones(20_000)
        while time.monotonic() < end:
            numbers.cos_()

    core, end = min(os.sched_getaffinity(0)), time.monotonic() + 1.0
    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    before = seconds_without_core()
    time.sleep(0.6)
    after = seconds_without_core()
    for thread in threads:
        thread.join()
    waited = sum(after[str(thread.native_id)] - before[str(thread.native_id)] for thread in threads)
    assert waited > 0.3, "0.6 s if nothing else runs, more if it does"


SPINNING = """
import sys, time
from pathlib import Path
import torch
from jointnmt.ops import waiting
from jointnmt.ops.waiting import Waiting, _libgomp

torch.set_num_threads(2)
numbers = torch.ones(1 << 18)
watched = Waiting(_libgomp())
def used_after_work():
    numbers.add(1)
    begin = time.process_time()
    for _ in range(40):
        numbers.add(1)
        time.sleep(0.005)
    return time.process_time() - begin
seconds = [used_after_work()]
watched.decide(2.0, 2)
time.sleep(0.2)
seconds.append(used_after_work())
for _ in range(waiting.QUIET_INTERVALS):
    watched.decide(0.0, 2)
time.sleep(0.2)
seconds.append(used_after_work())
print(seconds)
"""


@pytest.mark.slow
@LINUX
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads need two cores to spin")
def test_an_idle_team_makes_the_threads_of_the_runtime_sleep_instead_of_spin() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", SPINNING], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    before, brief, after = json.loads(done.stdout)
    assert brief < before / 2
    assert brief < after / 2


STARTED = """
import os, threading
import jointnmt.ops as ops
def watching():
    return sum(thread.name == "adapt-waiting" for thread in threading.enumerate())
ops.adapt_waiting()
ops.adapt_waiting()
print(watching())
"""


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize(
    ("variable", "expected"), [(None, 1), ("OMP_WAIT_POLICY=passive", 0), ("GOMP_SPINCOUNT=1000", 0)]
)
def test_one_thread_watches_unless_the_environment_decides(variable: str | None, expected: int) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    if variable is not None:
        name, _, value = variable.partition("=")
        environment[name] = value
    done = subprocess.run(
        [sys.executable, "-c", STARTED], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) == expected


def test_without_the_runtime_or_a_count_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    started = threading.active_count()
    for name, value in (("_libgomp", lambda: None), ("seconds_without_core", dict)):
        with monkeypatch.context() as context:
            context.setattr(waiting, "_watched", None)
            context.setattr(waiting, name, value)
            waiting.adapt_waiting()
    assert threading.active_count() == started


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [("max 100000", 48), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("", 48)],
)
def test_a_container_has_as_many_threads_as_it_may_use(
    limit: str, allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(cores, "CPU_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(48))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr(waiting, "_watched", os.getpid())
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    waiting.adapt_waiting()
    assert chosen == [allowed]
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    waiting.adapt_waiting()
    assert len(chosen) == 1
