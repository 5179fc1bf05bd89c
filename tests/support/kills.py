"""Trainings in processes of their own, killed before a file operation or at some moment."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}
"""Python's audit events of what changes files; an `open` counts if it is for writing."""


def train_in_process(plain: Mapping[str, Any], run: Path, places: list[Path], kill_before: int, count: Any) -> None:
    """Train, counting the file operations in `places`; kill this process before one of them (-1: none)."""
    import torch

    from jointnmt.experiment import Experiment
    from jointnmt.train import train
    from jointnmt.training.progress import NoDisplay

    torch.set_num_threads(1)
    within = tuple(map(str, places))

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in OPERATIONS or not str(arguments[0]).startswith(within):
            return
        if event == "open" and not (int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        if count.value == kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        count.value += 1

    sys.addaudithook(watch)
    train(Experiment.parse(dict(plain), origin="test"), run, NoDisplay())


class Trainings:
    """Starts trainings in clean processes, forked from one that has imported everything."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["jointnmt.train", "support.kills"])

    def run(
        self, plain: Mapping[str, Any], run: Path, kill_before: int = -1, kill_after: float | None = None
    ) -> tuple[int, int]:
        """The exit code of a training, and the number of its file operations in RUN and cache."""
        count = self.context.Value("i", 0)
        places = [run, Path(plain["data"]["cache"])]
        process = self.context.Process(target=train_in_process, args=(plain, run, places, kill_before, count))
        process.start()
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        process.join()
        assert process.exitcode is not None
        return process.exitcode, count.value
