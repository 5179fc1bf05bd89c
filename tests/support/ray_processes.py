"""Commands with a Ray cluster of their own, and its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

SECONDS = 300
"""Timeout of all waits: Ray takes a minute to start on a busy machine."""


def start_command(said: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a command; its output is appended to a file."""
    with said.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "jointnmt", *map(str, arguments)],
            stderr=stream,
            stdout=stream,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def start_head(port: int, said: Path) -> subprocess.Popen[bytes]:
    """Start a cluster of two cores on the loopback, which runs until it is stopped."""
    command = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--port", str(port)]
    command += ["--node-ip-address", "127.0.0.1", "--num-cpus", "2", "--disable-usage-stats"]
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    with said.open("wb") as stream:
        return subprocess.Popen(
            [*command, "--include-dashboard", "false"], stdout=stream, stderr=stream, env=environment
        )


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All processes of a command's cluster."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def named(processes: list[psutil.Process], name: str) -> list[psutil.Process]:
    """Processes whose title contains this name."""
    found = []
    for process in processes:
        try:
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:  # it has ended
            continue
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until a condition is true.

    Raises:
        AssertionError: if it does not become true.
    """
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {SECONDS} seconds"
        time.sleep(0.1)


def wait_for_the_end_of(processes: list[psutil.Process]) -> None:
    """Wait until a cluster has gone; processes that are left are killed, and are an error.

    Raises:
        AssertionError: naming them.
    """
    end = time.monotonic() + SECONDS
    while (alive := [process for process in processes if _runs(process)]) and time.monotonic() < end:
        time.sleep(0.1)
    for process in alive:
        process.kill()
    assert not alive, alive


def _runs(process: psutil.Process) -> bool:
    """Whether a process runs; where orphans are not reaped, one that has ended remains as a zombie."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
