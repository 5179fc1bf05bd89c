"""Training the missing runs of `results/CORPUS`, in order of importance, as long as there is time."""

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
"""Exit code of a training that was stopped, and has saved its state."""


def missing(corpus: Path, settings: CorpusSettings) -> Iterator[tuple[str, int]]:
    """System and seed of each uncollected run: the first seed of all systems, then the next."""
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
    """Train and collect missing runs; a training that runs out of time is stopped, and resumed by the next call.

    Args:
        corpus: `results/CORPUS`.
        runs: folder of the RUN directories `SYSTEM-SEED`.
        seconds: time for trainings; collecting the last one may take longer.
        changes: changes of all recipes, as for `jointnmt train --set`.
        device: device of translation.
        progress: called with lines that are translated.
        root: root of the repository.

    Yields:
        the folder of each run that has been collected.

    Raises:
        ModelError: if a training fails.
        ConfigurationError, DataError: as for `collect`.
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
    """Run a training for at most so many seconds; whether it has ended, else it has been stopped."""
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
        raise kind(f"{' '.join(command[2:])}: ended with exit code {code}; its output is above.")
    return code == 0
