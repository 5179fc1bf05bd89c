"""The RUN directory: what lies where, and whether an experiment may go on in it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from jointnmt.config import Config, differences, read_yaml
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.runs import checkpoint
from jointnmt.text.segmentation import Segmentation

logger = logging.getLogger(__name__)

MAY_CHANGE = (
    "name",
    "data.root",
    "data.cache",
    "data.processes",
    "training.accelerator",
    "training.average_best",
    "training.checkpoint_every",
    "training.devices",
    "training.log_every",
    "training.max_epochs",
    "training.max_updates",
    "training.nodes",
    "training.tensorboard",
    "validation.patience",
)
"""Keys that may differ when a training goes on: they change neither an update nor what has been chosen so far."""

PACKAGES = ("jointnmt", "torch", "lightning-fabric", "numpy", "tokenizers", "sacrebleu", "sacremoses", "safetensors")


class RunDirectory:
    """Paths inside RUN, and the writing of what is written once.

    `experiment.yaml` (resolved configuration), `segmentation/`, `model.safetensors` (the weights to translate with),
    `checkpoints/` (`last`, the one before it, and the best), `log.jsonl`, `tensorboard/`, `validation/`
    (translations), `versions.json` (of packages; seed and hardware).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.experiment = path / "experiment.yaml"
        self.segmentation = path / "segmentation"
        self.model = path / "model.safetensors"
        self.checkpoints = path / "checkpoints"
        self.last = self.checkpoints / "last.safetensors"
        self.previous = self.checkpoints / "previous.safetensors"
        self.log = path / "log.jsonl"
        self.tensorboard = path / "tensorboard"
        self.validation = path / "validation"
        self.versions = path / "versions.json"

    def model_digest(self) -> str:
        """SHA-256 of the weights' file, in hexadecimal."""
        with self.model.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def scored(self, step: int) -> Path:
        """The checkpoint of a validated step: weights alone."""
        return self.checkpoints / f"step-{step:08d}.safetensors"

    def open(self, experiment: Config) -> None:
        """Make RUN, or see that this experiment may go on in it, and write the configuration down.

        Where an earlier try ended before anything was trained, on bad data say, any experiment may begin anew; its
        segmentation goes, as it may be of other text.

        Raises:
            ConfigurationError: if the directory holds something else, or a run with another configuration.
            ModelError: if it holds a model, but no checkpoint to go on from: the model would be lost.
        """
        if self.experiment.exists():
            self._check(experiment)
            if self.model.exists() and not any(self.checkpoints.glob("*.safetensors")):
                raise ModelError(
                    f"{self.path}: holds a model, but no checkpoint of its training to go on from, and beginning anew "
                    "would replace the model. Choose another directory for --out, or delete this one."
                )
            if not self._is_trained() and self.segmentation.exists():
                shutil.rmtree(self.segmentation)
        self._check_place()
        self.path.mkdir(parents=True, exist_ok=True)
        checkpoint.write_text(self.experiment, experiment.to_yaml())  # first: from now on this is a run
        for directory in (self.checkpoints, self.validation):
            directory.mkdir(exist_ok=True)
        for directory in (self.path, self.checkpoints, self.validation):
            for unfinished in (*directory.glob(".*.new"), *directory.glob(".tmp*")):  # safetensors' name for its own
                if unfinished.is_file():  # a killed process was writing it
                    unfinished.unlink()

    def _check_place(self) -> None:
        """Refuse a directory of other things."""
        empty = not self.path.exists() or all(entry.name.startswith(".") for entry in self.path.iterdir())
        if not (empty or self.experiment.exists()):
            raise ConfigurationError(f"{self.path}: is not empty and holds no run. Choose another directory for --out.")

    def _check(self, experiment: Config) -> None:
        old = type(experiment).parse(read_yaml(self.experiment), origin=str(self.experiment))
        changed = differences(old.plain(), experiment.plain())
        forbidden = [line for line in changed if line.partition(":")[0] not in MAY_CHANGE]
        if forbidden and not self._is_trained():
            logger.info("%s: nothing has been trained here yet; begins anew with another configuration", self.path)
            return
        if forbidden:
            raise ConfigurationError(
                f"{self.path}: was made with another configuration: {'; '.join(forbidden)}. Choose another directory "
                "for --out, or go back to the old configuration."
            )
        if changed:
            logger.info("%s: goes on with a changed configuration: %s", self.path, "; ".join(changed))

    def _is_trained(self) -> bool:
        return self.model.exists() or any(self.checkpoints.glob("*.safetensors"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second training out while this one runs; the lock goes with the process, however that ends.

        Raises:
            ConfigurationError: if another training is running, or the directory holds something else.
        """
        self._check_place()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigurationError(f"{self.path}: another training is running in this directory.") from error
            yield

    def save_segmentation(self, segmentation: Segmentation) -> None:
        """Write the segmentation; it appears whole or not at all."""
        temporary = self.path / ".segmentation.new"
        shutil.rmtree(temporary, ignore_errors=True)
        segmentation.save(temporary)
        temporary.rename(self.segmentation)

    def write_versions(self, facts: dict[str, Any]) -> None:
        """Write down what made this run; warn if it goes on with other versions than before."""
        packages = {package: version(package) for package in PACKAGES}
        packages["python"] = platform.python_version()
        if self.versions.exists():
            try:
                old = dict(json.loads(self.versions.read_text(encoding="utf-8"))["packages"])
            except (ValueError, TypeError, KeyError):
                old = {}
                logger.warning("%s: is damaged, and is written anew", self.versions)
            if changed := differences(old or packages, packages):
                logger.warning("%s: goes on with other versions, results may differ: %s", self.path, "; ".join(changed))
        record = {"packages": packages, "platform": platform.platform(), **facts}
        checkpoint.write_text(self.versions, json.dumps(record, indent=2) + "\n")

    def write_weights(self, path: Path, weights: dict[str, Tensor], steps: list[int]) -> None:
        """Write a model's weights; `steps` are the updates after which they were taken, several if averaged."""
        checkpoint.write(path, weights, {"steps": steps})

    def holds_weights_of(self, steps: list[int]) -> bool:
        """Whether the weights to translate with are there, whole, and taken after these updates."""
        try:
            return bool(checkpoint.read(self.model)[1]["steps"] == steps)
        except ModelError:
            return False

    def write_translations(self, step: int, event: str, translations: Sequence[str]) -> None:
        """Write the translations of the validation text."""
        name = f"step-{step:08d}.txt" if event == "validation" else f"{event}.txt"
        checkpoint.write_text(self.validation / name, "".join(f"{line}\n" for line in translations))

    def save(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Write the last state; the one before it stays, and checkpoints that neither needs go."""
        if self.last.exists():
            self.last.replace(self.previous)
        checkpoint.write(self.last, tensors, values)
        self._prune()

    def _prune(self) -> None:
        """Delete scored checkpoints that neither the last state nor the one before it wants to keep."""
        keep = set()
        for state in (self.last, self.previous):
            if run := checkpoint.read_values(state).get("run"):
                keep |= {
                    self.scored(step) for step in [*(step for step, _ in run["selection"]["best"]), *run["latest"]]
                }
        for path in self.checkpoints.glob("step-*.safetensors"):
            if path not in keep:
                path.unlink()

    def read_last(self, remove_damaged: bool = False) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The newest state that is whole: tensors and values; None if there is none at all.

        Only who holds the lock may remove damaged states that are newer: others may be reading while one is written.

        Raises:
            ModelError: if there are states, but all are damaged.
        """
        damaged: list[Path] = []
        for path in (self.last, self.previous):
            try:
                state = checkpoint.read(path)
            except ModelError as error:
                if isinstance(error.__cause__, FileNotFoundError):  # none yet, or a training is just moving it
                    continue
                logger.warning("%s", error)
                damaged.append(path)
                continue
            for other in damaged:
                if remove_damaged:
                    other.unlink(missing_ok=True)  # or the next save would take it for the state before
                logger.warning("%s: going on from the state before it", other)
            return state
        if damaged:
            raise ModelError(
                f"{self.checkpoints}: the last state is damaged and there is none before it, so the training cannot go "
                f"on. Delete {self.path} and train anew."
            )
        return None
