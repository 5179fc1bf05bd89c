"""Short trainings that chose the settings of a system: `results/CORPUS/trials/SYSTEM/NAME`, and their table.

A trial is kept as its recipe and its log. It is told by what it changes of the first trial of its system.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jointnmt.config import differences, read_yaml
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.hub import portable
from jointnmt.report.curves import LearningCurves, read_learning_curves
from jointnmt.runs.directory import RunDirectory
from results.layout import CorpusSettings, whole

FOLDER = "trials"
ALIKE = ("name", "seed")
"""Keys that say nothing about a trial."""
ABSENT = "(absent)"
"""What `differences` has for the value of a key that is not there."""


@dataclass(frozen=True)
class Trial:
    """A short training of a system."""

    system: str
    """The name of the system."""
    changes: str
    """Keys and values that differ from the first trial of the system."""
    seed: int
    curves: LearningCurves


def collect_trial(run: Path, folder: Path) -> Path:
    """Keep the recipe and the log of a training in `results/CORPUS/trials/SYSTEM/NAME`; returns that folder.

    Raises:
        ConfigurationError: if `results.yaml` does not name the trial, or it is there already.
        ModelError: if the run is incomplete.
    """
    settings = CorpusSettings.load(folder.parents[2])
    if folder.parents[1].name != FOLDER or folder.name not in settings.trials.get(folder.parent.name, ()):
        raise ConfigurationError(f"{folder}: results.yaml names no such trial. Add it there, under trials.")
    with whole(folder) as unfinished:
        files, kept = RunDirectory(run), RunDirectory(unfinished)
        kept.write_experiment(portable(files.read_experiment()))
        for source, target in ((files.log, kept.log), (files.versions, kept.versions)):
            shutil.copyfile(source, target)
    return folder


def read_trials(corpus: Path, settings: CorpusSettings) -> Iterator[Trial]:
    """The trials that are kept, in the order of `results.yaml`.

    Raises:
        DataError: if one is kept of which the first of its system is not.
    """
    for system, names in settings.trials.items():
        folders = [corpus / FOLDER / system / name for name in names]
        kept = [folder for folder in folders if folder.is_dir()]
        if kept and kept[0] != folders[0]:
            raise DataError(f"{folders[0]}: is missing: the other trials of {system} are compared with it. Collect it.")
        values = [_values(folder) for folder in kept]
        for folder, mine in zip(kept, values, strict=True):
            named = list(_named(differences(values[0], mine)))
            curves = read_learning_curves(folder, settings.systems[system])
            yield Trial(settings.systems[system], ", ".join(named) or "as its recipe", mine["seed"], curves)


def _named(differences: Iterable[str]) -> Iterator[str]:
    """The keys that differ, each with its value; of a section that the first trial does not have, its keys alone."""
    for line in differences:
        key, _, values = line.partition(": ")
        before, _, value = values.partition(" -> ")
        if key not in ALIKE and value != ABSENT and (before, value) != (ABSENT, "None"):
            yield f"`{key}` {value}"


def _values(folder: Path) -> dict[str, Any]:
    """Of all keys; those that are newer than the trial have their defaults."""
    file = RunDirectory(folder).experiment
    return Experiment.parse(dict(read_yaml(file)), origin=str(file)).plain()
