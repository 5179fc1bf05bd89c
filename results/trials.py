"""Short trainings that chose the settings of a system: `results/CORPUS/trials/SYSTEM/NAME`.

A trial is kept as its recipe, its log and its last translations of the validation text. It is described by its changes
of the recipe of its system.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jointnmt.config import differences, read_yaml
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.report.curves import LearningCurves, read_learning_curves
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.folder import new_folder
from results.layout import CorpusSettings, copy_records

FOLDER = "trials"
APART = (
    "name",
    "seed",
    "data.root",
    "data.train.0.path",
    "data.validation.0.path",
    "training.max_updates",
    "training.schedule.zero_at",
    "training.precision",
)
"""Keys that do not count as changes: paths of texts, values reported separately, and what makes a trial short."""
ABSENT = "(absent)"
"""Value in `differences` of a key that is absent."""


@dataclass(frozen=True)
class Trial:
    """A short training of a system."""

    key: str
    """SYSTEM/NAME, as in its folder."""
    system: str
    """The name of the system."""
    changes: str
    """Keys and values that differ from the recipe of the system."""
    seed: int
    precision: str
    """Precision of the training."""
    bleu_sentences: int | None
    """Number of sentences that BLEU was measured on; None: the whole validation text."""
    curves: LearningCurves
    translations: Sequence[str] | None
    """Translations of the validation text, if they were kept."""


def collect_trial(run: Path, folder: Path) -> Path:
    """Copy the kept files of a training to `results/CORPUS/trials/SYSTEM/NAME`; returns that folder.

    Raises:
        ConfigurationError: if `results.yaml` does not name the trial, or it is already kept.
        ModelError: if the run is incomplete.
    """
    settings = CorpusSettings.load(folder.parents[2])
    if folder.parents[1].name != FOLDER or folder.name not in settings.trials.get(folder.parent.name, ()):
        raise ConfigurationError(f"{folder}: results.yaml names no such trial. Add it there, under trials.")
    with new_folder(folder) as unfinished:
        experiment = copy_records(run, unfinished)
        translated = sorted(RunDirectory(run).validation.glob("step-*.txt"))
        if translated and experiment.validation.bleu_sentences is None:
            shutil.copyfile(translated[-1], unfinished / f"valid.{settings.target_language}")
    return folder


def read_trials(corpus: Path, settings: CorpusSettings, root: Path) -> Iterator[Trial]:
    """The kept trials, in the order of `results.yaml`; `root`: root of the repository."""
    for system, names in settings.trials.items():
        recipe = Experiment.load(root / settings.recipes[system]).plain()
        for folder in (corpus / FOLDER / system / name for name in names):
            if not folder.is_dir():
                continue
            values = _values(folder)
            translations = folder / f"valid.{settings.target_language}"
            yield Trial(
                key=f"{system}/{folder.name}",
                system=settings.systems[system],
                changes=", ".join(_named(differences(recipe, values))) or "as its recipe",
                seed=values["seed"],
                precision=values["training"]["precision"],
                bleu_sentences=values["validation"]["bleu_sentences"],
                curves=read_learning_curves(folder, settings.systems[system]),
                translations=list(text_lines(translations)) if translations.is_file() else None,
            )


def _named(differences: Iterable[str]) -> Iterator[str]:
    """The keys that differ, with their values; for a section that the recipe lacks, its keys alone."""
    for line in differences:
        key, _, values = line.partition(": ")
        before, _, value = values.partition(" -> ")
        if key not in APART and value != ABSENT and (before, value) != (ABSENT, "None"):
            yield f"`{key}` {value}"


def _values(folder: Path) -> dict[str, Any]:
    """Values of all keys; those that are newer than the trial have their defaults."""
    file = RunDirectory(folder).experiment
    return Experiment.parse(dict(read_yaml(file)), origin=str(file)).plain()
