"""Each subject in a process of its own, so that its memory is its own, and ready to take its turn."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from benchmarks.machine import finish, peak_bytes, resident_bytes
from benchmarks.profiling import shares_of_time
from jointnmt.training.memory import bound_kernel_cache, keep_freed_memory


@dataclass(frozen=True)
class Work:
    """What a run has done. Cells of a Transformer are those that a grid of its batches would have."""

    operations: float
    """Useful ones."""
    sentences: int
    cells: int
    """Whose source and target token are both real."""
    padded_cells: int
    """Padding included."""
    largest_batch: int
    """Most cells computed at once, padding included."""


class Subject(Protocol):
    """What is measured, in its own process."""

    device: str
    """Where it runs: cpu or cuda."""
    late_bytes: int
    """What the first run adds to memory for good."""
    warm_up_runs: int
    """Before the first that counts."""

    def run(self) -> None:
        """Do what is timed."""

    def work(self) -> Work:
        """What the last run has done."""


@dataclass(frozen=True)
class Round:
    """One timed run: seconds of wall-clock time, and of the process's time on all its cores."""

    seconds: float
    process_seconds: float
    work: Work
    peak_bytes: int
    """The most memory that the process has had so far, warming up included."""
    peak_cells: int
    """The most cells that a batch has had so far, padding included."""


class SubjectLostError(Exception):
    """A subject's process has ended, or was refused."""


class Worker:
    """A process that builds a subject, warms it up, and then runs it when told to.

    Args:
        build: makes the subject; it is pickled.
        threads: that torch may use there.
    """

    def __init__(self, build: Callable[[], Subject], threads: int) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages: none
        # Forked from a process that has only imported: as clean as a fresh interpreter, without its seconds.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.training", "benchmarks.decoding"])
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build, threads), daemon=True)
        self._process.start()
        theirs.close()
        self.base_bytes, self.warm_up_seconds = self._receive()
        """Memory of the process before the first run, and what that adds for good; and the time of warming up."""

    def run(self) -> Round:
        """Time one run."""
        return self._ask("run")

    def profile(self) -> dict[str, float]:
        """The shares of one run's time; see `shares_of_time`."""
        return self._ask("profile")

    def _ask(self, command: str) -> Any:
        self._connection.send(command)
        return self._receive()

    def _receive(self) -> Any:
        """The process's answer.

        Raises:
            SubjectLostError: if it has ended, or its subject has raised an error.
        """
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join()
            code = self._process.exitcode
            reason = ", killed: out of memory?" if code == -9 else ""
            raise SubjectLostError(f"its process ended with exit code {code}{reason}") from error
        if isinstance(answer, SubjectLostError):
            raise answer
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with suppress(OSError):
            self._connection.send("stop")
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
        self._connection.close()


def _serve(connection: Connection, build: Callable[[], Subject], threads: int) -> None:
    """The other process: answer every command with what it asks for, or with the error that it meets."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    bound_kernel_cache()
    try:
        subject = build()
        base = resident_bytes(subject.device) + subject.late_bytes
        began = time.perf_counter()
        peak_cells = 0
        for _ in range(subject.warm_up_runs):
            _finish_run(subject)
            peak_cells = max(peak_cells, subject.work().largest_batch)
        connection.send((base, time.perf_counter() - began))
        while (command := connection.recv()) != "stop":
            if command == "profile":
                connection.send(_profiled(subject))
                continue
            timed = _timed(subject, peak_cells)
            peak_cells = timed.peak_cells
            connection.send(timed)
    except Exception as error:
        connection.send(SubjectLostError(f"{type(error).__name__}: {error}"))


def _timed(subject: Subject, peak_cells: int) -> Round:
    wall, process = time.perf_counter(), time.process_time()
    _finish_run(subject)
    wall, process = time.perf_counter() - wall, time.process_time() - process
    work = subject.work()
    return Round(wall, process, work, peak_bytes(subject.device), max(peak_cells, work.largest_batch))


def _profiled(subject: Subject) -> dict[str, float]:
    return shares_of_time(lambda: _finish_run(subject), subject.device)


def _finish_run(subject: Subject) -> None:
    subject.run()
    finish(subject.device)
