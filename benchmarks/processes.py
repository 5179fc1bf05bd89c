"""Subjects in processes of their own, so that memory is measured for each, ready to take turns."""

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
    """The work of a run. Cells of a Transformer are those that a grid of its batches would have."""

    operations: float
    """Useful operations."""
    sentences: int
    cells: int
    """Cells whose source and target token are both real."""
    padded_cells: int
    """Cells, padding included."""
    largest_batch: int
    """Most cells computed at once, padding included."""


class Subject(Protocol):
    """The subject of a measurement, in its own process."""

    device: str
    """Device that it runs on: cpu or cuda."""
    late_bytes: int
    """Bytes that the first run adds to memory permanently."""
    warm_up_runs: int
    """Runs before the first that counts."""

    def run(self) -> None:
        """Do the work that is timed."""

    def work(self) -> Work:
        """The work of the last run."""


@dataclass(frozen=True)
class Round:
    """One timed run: seconds of wall-clock time, and of the process's time on all its cores."""

    seconds: float
    process_seconds: float
    work: Work
    peak_bytes: int
    """Peak memory of the process so far, warm-up included."""
    peak_cells: int
    """Most cells of a batch so far, padding included."""


class SubjectLostError(Exception):
    """A subject's process has ended, or was refused."""


class Worker:
    """A process that builds a subject, warms it up, and then runs it on demand.

    Args:
        build: makes the subject; must be picklable.
        threads: threads of torch in that process.
    """

    def __init__(self, build: Callable[[], Subject], threads: int) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler
        # Forked from a process that has only imported: as clean as a new interpreter, but starts at once.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.training", "benchmarks.decoding"])
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build, threads), daemon=True)
        self._process.start()
        theirs.close()
        self.base_bytes, self.warm_up_seconds = self._receive()
        """Memory of the process before the first run plus what that adds permanently; and the time of warm-up."""

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
    """The subject's process: answer every command with its result or its error."""
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
