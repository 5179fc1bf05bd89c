"""Machines that train together, each a torchrun with its workers: started, killed and awaited on the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
from torch.distributed import TCPStore

from jointnmt.runs.directory import RunDirectory

SECONDS = 120
"""Timeout of all waits: workers take half a minute to start on a busy machine."""

TIMES = "last_call_timeout=8,keep_alive_interval=1,keep_alive_max_attempt=5,is_host=false"
"""Times after which a machine counts as lost, and the rest continues without others."""


NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Setting by which restarted workers have a new store."""


class Machine:
    """A torchrun with its workers; `said` is the file of their messages."""

    def __init__(self, said: Path, cache: Path, torchrun: list[str], train: list[str]) -> None:
        self.said = said
        command = [sys.executable, "-m", "torch.distributed.run", "--monitor-interval", "0.1", *torchrun]
        environment = {**os.environ, "JOINTNMT_CACHE": str(cache), "OMP_NUM_THREADS": "1", **NEW_STORE}
        with said.open("ab") as stream:
            self.process = subprocess.Popen(
                [*command, "-m", "jointnmt", "train", *train], stdout=stream, stderr=stream, env=environment
            )
        self._torchrun = psutil.Process(self.process.pid)

    def workers(self) -> list[psutil.Process]:
        """The processes that train, in the order of their ranks; none during a restart."""
        try:
            return sorted(self._torchrun.children(), key=lambda worker: int(worker.environ()["RANK"]))
        except (psutil.NoSuchProcess, psutil.ZombieProcess, KeyError):  # KeyError: forked, and not yet a worker
            return []

    def lose(self) -> None:
        """Kill torchrun and its workers, as if the machine were switched off."""
        with_workers = [self._torchrun, *self._torchrun.children(recursive=True)]
        for process in with_workers:
            process.send_signal(signal.SIGSTOP)  # else torchrun would end its workers in an orderly way
        for process in with_workers:
            process.kill()
        self.process.wait()

    def end(self) -> int:
        """Wait for the end of the training; returns torchrun's exit code."""
        return self.process.wait(timeout=SECONDS)


class Machines:
    """Starts machines, which find each other through a store of this process, and end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, list[Machine]()
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))

    def alone(self, recipe: Path, run: Path, processes: int, restarts: int, *more: str) -> Machine:
        """A machine that trains by itself, with several processes."""
        torchrun = ["--standalone", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
        return self._start(recipe, torchrun, ["--out", str(run), *more])

    def join(self, recipe: Path, run: Path, most: int, number: int, *more: str) -> Machine:
        """A machine with one process, of up to `most` that train together; ranks are in the order of numbers."""
        torchrun = ["--nnodes", f"1:{most}", "--nproc-per-node", "1", "--max-restarts", "100", "--rdzv-backend", "c10d"]
        torchrun += ["--rdzv-endpoint", f"127.0.0.1:{self._store.port}", "--rdzv-id", str(recipe.parent)]
        torchrun += ["--rdzv-conf", TIMES, "--local-addr", f"127.0.0.{number}"]
        return self._start(recipe, torchrun, ["--out", str(run), *more])

    def _start(self, recipe: Path, torchrun: list[str], train: list[str]) -> Machine:
        said = self.folder / f"{len(self.started)}.said"
        self.started.append(Machine(said, recipe.parent / "cache", torchrun, [str(recipe), *train]))
        return self.started[-1]


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Machines; those that still run at the end are killed."""
    group = Machines(folder)
    try:
        yield group
    finally:
        for machine in group.started:
            if machine.process.poll() is None:
                machine.lose()


def wait_until(condition: Callable[[], bool], machine: Machine) -> None:
    """Wait for something to become true while a machine trains."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert machine.process.poll() is None, machine.said.read_text()
        assert time.monotonic() < deadline, machine.said.read_text()
        time.sleep(0.01)


def trained_to(run: Path, step: int) -> Callable[[], bool]:
    """Whether the training in a directory has saved this update or a later one."""
    return lambda: RunDirectory(run).states.newest_step() >= step
