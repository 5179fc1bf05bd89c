"""Commands in processes of their own, killed, or with a failing disk, at a file operation or a moment."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAKING_ROOM = {"open", "os.rename", "os.mkdir", "os.link", "os.symlink"}
"""Python's audit events of operations that a full disk may refuse; an `open` counts if it is for writing."""

OPERATIONS = TAKING_ROOM | {"os.remove", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}
"""Audit events of operations that change files."""

PRELOADED = [
    "support.commands",
    "jointnmt.training.run",
    *(f"jointnmt.cli.{name}" for name in ("main", "report", "probe")),
    *(f"jointnmt.report.{name}" for name in ("contents", "page")),
    "jointnmt.analysis.study",
    "jointnmt.training.sharding",
]
"""Modules imported once, by the process that all others are forked from."""

DOCUMENTED = {0, 2, 3, 4, 6}
"""Exit codes that a fault may lead to."""

LONGEST_MESSAGE = 2500
"""Most characters of a message; messages quote paths, which are long here."""


@dataclass(frozen=True)
class Fault:
    """A fault of a process."""

    before: int = -1
    """Number of the file operation before which it happens; -1: none."""
    error: int = 0
    """An `errno`, with which this operation and all later ones fail; 0: the process is killed."""
    seconds: float | None = None
    """Seconds after which the process is killed."""
    file_bytes: int | None = None
    """Most bytes of a file; writes beyond it fail, in any library."""


NOTHING = Fault()


@dataclass(frozen=True)
class Outcome:
    """Result of a command."""

    code: int
    """Exit code; negative: the signal that ended it."""
    operations: int
    """Number of changes of files in the watched places."""
    printed: bytes
    said: str
    """Text of standard error."""

    @property
    def complaint(self) -> str | None:
        """Output that does not help a user: a traceback, an undocumented exit code, a long message; None: no such."""
        if self.code not in DOCUMENTED or "Traceback" in self.said:
            return f"exit code {self.code}: {self.said[-3000:]}"
        message = self.said.rpartition("jointnmt: error")[2]
        return f"a message of {len(message):,} characters" if self.code and len(message) > LONGEST_MESSAGE else None


class Commands:
    """Starts commands in clean processes, forked from one that has imported everything."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for the output of the commands."""
        self.folder, self.started = folder, 0
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)

    def start(
        self,
        *arguments: object,
        places: Sequence[Path] = (),
        fault: Fault = NOTHING,
        env: Mapping[str, str] | None = None,
    ) -> Callable[[], Outcome]:
        """Start a command; the returned function waits for its end. File operations are counted in `places`."""
        self.started += 1
        printed, said = (self.folder / f"{self.started}.{name}" for name in ("printed", "said"))
        for path in (printed, said):
            path.touch()
        count = self.context.Value("i", 0)
        environment = {**os.environ, "COLUMNS": "200", **(env or {})}
        given = list(map(str, arguments)), tuple(map(str, places)), fault, (str(printed), str(said)), count, environment
        process = self.context.Process(target=_call, args=given)
        process.start()

        def wait() -> Outcome:
            process.join(fault.seconds)
            if fault.seconds is not None and process.exitcode is None:
                process.kill()
            process.join()
            assert process.exitcode is not None
            return Outcome(process.exitcode, count.value, printed.read_bytes(), said.read_text(errors="replace"))

        return wait

    def run(self, *arguments: object, **options: Any) -> Outcome:
        """Start a command, and wait for its end."""
        return self.start(*arguments, **options)()

    def train_together(
        self,
        recipe: Path,
        run: Path,
        *more: object,
        faults: Sequence[Fault] = (NOTHING, NOTHING),
        env: Mapping[str, str] | None = None,
    ) -> list[Outcome]:
        """Train with several processes in torchrun's environment; the result of each."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        size = str(len(faults))
        shared = {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_RANK": "0"}
        shared |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, **(env or {})}
        waits = {}
        for rank, fault in enumerate(faults):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            arguments = "train", recipe, "--out", run, *more
            waits[rank] = self.start(*arguments, places=[run], fault=fault, env=shared | ranks)
        # Waiting for a process with a fault kills it, so it is first.
        outcomes = {rank: waits[rank]() for rank in sorted(waits, key=lambda rank: faults[rank].seconds is None)}
        return [outcomes[rank] for rank in sorted(outcomes)]


def _call(
    arguments: Sequence[str],
    places: tuple[str, ...],
    fault: Fault,
    streams: tuple[str, str],
    count: Any,
    environment: Mapping[str, str],
) -> None:
    """Run a command in this process."""
    import torch

    from jointnmt.cli.main import app

    os.environ.update(environment)
    torch.set_num_threads(1)
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)

    def watch(event: str, about: tuple[Any, ...]) -> None:
        if event not in OPERATIONS or not str(about[0]).startswith(places):
            return
        if event == "open" and not (int(about[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        number, count.value = count.value, count.value + 1
        if not 0 <= fault.before <= number:
            return
        if not fault.error:
            os.kill(os.getpid(), signal.SIGKILL)
        if event in TAKING_ROOM or fault.error != errno.ENOSPC:
            raise OSError(fault.error, os.strerror(fault.error), str(about[0]))

    sys.addaudithook(watch)
    if fault.file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.file_bytes, fault.file_bytes))
    app(list(arguments))
