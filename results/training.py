"""Training what is missing in `results/CORPUS`, in order of importance, for as long as there is time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.testset.records import ProgressCallback
from results.collect import collect
from results.layout import CorpusSettings, seed_folder

STOPPED = 128 + signal.SIGTERM
"""Exit code of a training that was told to stop, and has saved its state."""


def missing(corpus: Path, settings: CorpusSettings) -> Iterator[tuple[str, int]]:
    """System and seed of each run that is not collected: the first seed of all systems, then the next."""
    for seed in settings.seeds:
        for system in settings.recipes:
            if not seed_folder(corpus / system, seed).exists():
                yield system, seed


def train_missing(
    corpus: Path,
    runs: Path,
    seconds: float,
    changes: Sequence[str],
    device: str,
    progress: ProgressCallback,
    root: Path = Path(),
) -> Iterator[Path]:
    """Train and collect what is missing; a training that time runs out for is stopped, and resumed by the next call.

    Args:
        corpus: `results/CORPUS`.
        runs: folder of the RUN directories, `SYSTEM-SEED` each.
        seconds: for trainings; collecting the last one may take longer.
        changes: of all recipes, as `jointnmt train --set` takes them.
        device: where the texts are translated.
        progress: is told of lines that are translated.
        root: of the repository.

    Yields:
        the folder of each run that has been collected.

    Raises:
        ModelError: if a training fails.
        ConfigurationError, DataError: as of `collect`.
    """
    settings = CorpusSettings.load(corpus)
    end = time.monotonic() + seconds
    for system, seed in list(missing(corpus, settings)):
        run = runs / f"{system}-{seed}"
        command = [sys.executable, "-m", "jointnmt", "train", str(root / settings.recipes[system]), "--out", str(run)]
        for change in (*changes, f"seed={seed}"):
            command += ["--set", change]
        if not ended(command, end - time.monotonic()):
            return
        yield collect(run, corpus / system, device, progress, root)


def ended(command: Sequence[str], seconds: float) -> bool:
    """Whether a training has come to its end in so many seconds; else it has been stopped."""
    if seconds <= 0:
        return False
    with subprocess.Popen(command) as process:
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            code = process.wait()
    if code not in (0, STOPPED):
        kind = ConfigurationError if code == ConfigurationError.exit_code else ModelError
        raise kind(f"{' '.join(command[2:])}: ended with exit code {code}; what it said stands above.")
    return code == 0
