"""The files in `results/CORPUS`: `results.yaml`, and for each system and seed those of a training run.

results/CORPUS/results.yaml              languages, texts, names of the systems
results/CORPUS/SYSTEM/seed-N/
    valid.LANGUAGE, test.LANGUAGE        translations of the texts
    valid.likelihood.tsv, test.likelihood.tsv   log-probability and number of pieces of each reference
    log.jsonl, versions.json             losses, validations, packages and hardware of the training
    experiment.yaml                      the recipe, with all defaults
    measured.json                        what needs the weights: sizes, perplexities, their checksum
results/CORPUS/trials/SYSTEM/NAME/       a short training: log.jsonl, versions.json, experiment.yaml, valid.LANGUAGE
results/CORPUS/costs.json                time of training and translating, as `benchmarks.systems` measures it
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from jointnmt.config import Config, read_yaml
from jointnmt.data.corpus import DataConfig, ParallelText
from jointnmt.data.lines import text_lines
from jointnmt.data.pairs import read_pairs
from jointnmt.errors import DataError, ModelError
from jointnmt.evaluation.likelihood import Likelihood
from jointnmt.experiment import Experiment
from jointnmt.hub import portable
from jointnmt.runs.directory import RunDirectory
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.systems import EvaluatedSystem, SystemRun

SETTINGS, MEASURED, COSTS = "results.yaml", "measured.json", "costs.json"
TEXTS = ("valid", "test")


class CorpusSettings(Config):
    """The texts that systems of one corpus are measured on, and the names of the systems."""

    title: str = Field(description="title of the tables")
    source_language: str
    target_language: str
    texts: dict[str, ParallelText] = Field(description="valid and test; paths start at the root of the repository")
    systems: dict[str, str] = Field(description="folder and name of each system; others are compared with the first")
    recipes: dict[str, Path] = Field(
        {}, description="recipe of each system, from the root of the repository; in order of importance"
    )
    seeds: tuple[int, ...] = Field((1, 2, 3), description="seeds of the trainings of a system")
    trials: dict[str, tuple[str, ...]] = Field(
        {}, description="short trainings of a system, by which its settings were chosen; it has a recipe"
    )
    costs: dict[str, str] = Field(
        {},
        description="trials, as SYSTEM/NAME, whose quality and cost are compared, and their names; the cost of others "
        "is relative to the first",
    )
    curves: tuple[str, ...] = Field((), description="systems whose learning curves are drawn; none: all")
    contrasts: dict[str, tuple[tuple[str, str], ...]] = Field(
        {}, description="questions, each with the pairs of systems whose difference answers it"
    )
    length_edges: tuple[int, ...] = Field((10, 20, 30, 40), description="beginnings of buckets of source lengths")

    @model_validator(mode="after")
    def _are_told_apart(self) -> Self:
        names = [*self.systems.values()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"systems has two of the name {twice[0]!r}")
        if missing := [text for text in TEXTS if text not in self.texts]:
            raise ValueError(f"texts names no {missing[0]}")
        if list(self.length_edges) != sorted(set(self.length_edges)):
            raise ValueError("length_edges should rise")
        return self

    @model_validator(mode="after")
    def _all_are_systems(self) -> Self:
        for key in ("recipes", "trials", "curves"):
            if unknown := sorted(set(getattr(self, key)) - self.systems.keys()):
                raise ValueError(f"{key} names {unknown[0]}, which systems does not")
        compared = {system for pairs in self.contrasts.values() for pair in pairs for system in pair}
        if unknown := sorted(compared - self.systems.keys()):
            raise ValueError(f"contrasts names {unknown[0]}, which systems does not")
        if without := sorted(self.trials.keys() - self.recipes.keys()):
            raise ValueError(f"trials names {without[0]}, which has no recipe")
        known = {f"{system}/{name}" for system, names in self.trials.items() for name in names}
        if unknown := sorted(self.costs.keys() - known):
            raise ValueError(f"costs names {unknown[0]}, which trials does not")
        return self

    @classmethod
    def load(cls, corpus: Path) -> Self:
        """Read the settings of `results/CORPUS`.

        Raises:
            ConfigurationError: if they are invalid.
            DataError: if there are none.
        """
        path = corpus / SETTINGS
        if not path.is_file():
            raise DataError(f"{path}: is missing. It names the texts and systems: copy that of another corpus.")
        return cls.parse(read_yaml(path), origin=str(path))

    def eval_set(self, text: str, root: Path = Path()) -> EvalSet:
        """Sources and references of one of the texts; `root`: root of the repository."""
        place = self.texts[text]
        languages = {"source_language": self.source_language, "target_language": self.target_language}
        config = DataConfig.parse({"root": str(root), "train": [place.plain()], **languages}, origin=SETTINGS)
        pairs = list(read_pairs([place], config))
        name = ", ".join(map(str, place.files))
        return EvalSet([pair.source for pair in pairs], [pair.target for pair in pairs], name, name)


@dataclass(frozen=True)
class CollectedMeasures:
    """Measurements with the weights of a run when it was collected."""

    weights: str
    """SHA-256 of the file of weights."""
    segmentation: str
    """Fingerprint of the segmentation; perplexities compare only between equal ones."""
    lowercase: bool
    parameters: int
    """Parameters outside the embeddings."""
    embeddings: int
    perplexity: dict[str, float]
    """Perplexity of the references of each text, teacher-forced."""
    cut: dict[str, int]
    """Number of translations of each text that were cut at the greatest length."""
    commit: str
    """Commit of this repository when the run was collected."""

    def write(self, folder: Path) -> None:
        """Write `measured.json`."""
        (folder / MEASURED).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `measured.json`.

        Raises:
            ModelError: if it is missing or damaged.
        """
        try:
            return cls(**json.loads((folder / MEASURED).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(
                f"{folder / MEASURED}: is missing or damaged ({error}). Collect the run again, with python -m results "
                "collect."
            ) from error


@dataclass(frozen=True)
class CollectedRun:
    """A training run in `results/`."""

    folder: Path
    seed: int
    measured: CollectedMeasures

    def translations(self, text: str, language: str) -> list[str]:
        """Translations of one of the texts."""
        return list(text_lines(self.folder / f"{text}.{language}"))

    def likelihood(self, text: str) -> Likelihood | None:
        """Likelihood of the references of one of the texts; None if the run was collected without."""
        path = likelihood_file(self.folder, text)
        if not path.is_file():
            return None
        numbers = [line.split("\t") for line in text_lines(path)]
        log_probabilities, pieces = [float(each) for each, _ in numbers], [int(each) for _, each in numbers]
        return Likelihood(log_probabilities, pieces, self.measured.segmentation)


@dataclass(frozen=True)
class CollectedSystem:
    """The runs of a system, by seed."""

    name: str
    runs: Sequence[CollectedRun]

    def evaluated(self, text: str, settings: CorpusSettings) -> EvaluatedSystem:
        """The system's translations of one of the texts, for `evaluate_systems`."""
        languages = settings.source_language, settings.target_language
        return EvaluatedSystem(
            self.name,
            [
                SystemRun(
                    f"{self.name}, seed {run.seed}",
                    run.translations(text, settings.target_language),
                    languages,
                    run.likelihood(text),
                    run.measured.lowercase,
                )
                for run in self.runs
            ],
        )


def likelihood_file(run: Path, text: str) -> Path:
    """File of a collected run with its `Likelihood` of the references of one of the texts, a line each."""
    return run / f"{text}.likelihood.tsv"


def seed_folder(system: Path, seed: int) -> Path:
    """Folder of the run of a seed."""
    return system / f"seed-{seed}"


def copy_records(run: Path, folder: Path) -> Experiment:
    """Copy the log and the versions of a training, and its recipe without paths of this machine; returns the recipe."""
    files, kept = RunDirectory(run), RunDirectory(folder)
    experiment = files.read_experiment()
    kept.write_experiment(portable(experiment))
    for source, target in ((files.log, kept.log), (files.versions, kept.versions)):
        shutil.copyfile(source, target)
    return experiment


def read_systems(corpus: Path, settings: CorpusSettings) -> list[CollectedSystem]:
    """The systems with collected runs, in the order of `results.yaml`.

    Raises:
        DataError: if a folder belongs to no system that is named there.
        ModelError: if a run is damaged.
    """
    folders = {path.name for path in corpus.iterdir() if path.is_dir() and any(path.glob("seed-*"))}
    if unknown := sorted(folders - settings.systems.keys()):
        raise DataError(f"{corpus / unknown[0]}: has no name. Add it to systems in {corpus / SETTINGS}.")
    return [
        CollectedSystem(name, list(_runs(corpus / folder)))
        for folder, name in settings.systems.items()
        if folder in folders
    ]


def _runs(system: Path) -> Iterator[CollectedRun]:
    numbers = [path.name.removeprefix("seed-") for path in system.glob("seed-*")]
    if wrong := [number for number in numbers if not (number.isascii() and number.isdigit())]:
        raise DataError(f"{system}/seed-{wrong[0]}: is no run of a seed. Move it away.")
    seeds = sorted(map(int, numbers))
    for seed in seeds:
        yield CollectedRun(seed_folder(system, seed), seed, CollectedMeasures.read(seed_folder(system, seed)))
