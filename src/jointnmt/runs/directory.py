"""The RUN directory: names of its files, and its configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jointnmt.config import read_yaml
from jointnmt.errors import ConfigurationError, MissingPackageError
from jointnmt.experiment import Experiment
from jointnmt.files import hash_file, write_text
from jointnmt.models.families import find_family
from jointnmt.runs import checkpoint
from jointnmt.runs.parts import is_bound
from jointnmt.runs.states import SavedStates
from jointnmt.shipped import CONFIGURATION_FILE, WEIGHTS_FILE, locate_run

END = "...\n"
"""YAML's end mark, the last line of `experiment.yaml`: a file without it may be truncated."""


FAMILY_PACKAGES = "family_packages"
"""Key of the packages that define the model's family, if it is another package's, with their versions."""


class RunDirectory:
    """Paths in a RUN directory; `training.directory` writes it during a training.

    `experiment.yaml` (resolved configuration), `segmentation/`, `model.safetensors` (weights for translation),
    `checkpoints/` (the last state, the one before it, and the best weights), `log.jsonl`, `tensorboard/`,
    `validation/` (translations), `versions.json` (packages, seed, hardware). A folder of `save_pretrained` has
    `config.json` instead of what only training needs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = locate_run(path)
        self.experiment = path / CONFIGURATION_FILE
        self.segmentation = path / "segmentation"
        self.model = path / WEIGHTS_FILE
        self.checkpoints = path / "checkpoints"
        self.states = SavedStates(self.checkpoints)
        self.log = path / "log.jsonl"
        self.tensorboard = path / "tensorboard"
        self.validation = path / "validation"
        self.versions = path / "versions.json"
        self.about = path / "config.json"

    def write_experiment(self, experiment: Experiment) -> None:
        """Write the resolved configuration."""
        write_text(self.experiment, experiment.to_yaml() + END)

    def read_experiment(self) -> Experiment:
        """The resolved configuration, which extends nothing and has every key.

        Raises:
            ConfigurationError: if it is invalid or truncated.
            MissingPackageError: if its family is one of a package that is not installed.
        """
        values = read_yaml(self.experiment)
        if "extends" in values:
            raise ConfigurationError(
                f"{self.experiment}: extends: the configuration of a model may not extend another."
            )
        is_whole = self.experiment.read_bytes().rstrip().endswith(END.strip().encode())
        if not is_whole and any(is_bound(checkpoint.read_values(path)) for path in (self.model, self.states.last)):
            raise ConfigurationError(
                f"{self.experiment}: is truncated: its last line, `{END.strip()}`, is missing, and others may be."
            )
        self._check_family(values.get("model"))
        return Experiment.parse(values, origin=str(self.experiment))

    def _check_family(self, model: Any) -> None:
        family = model.get("family") if isinstance(model, Mapping) else None
        if isinstance(family, str) and find_family(family) is None and (packages := self._family_packages()):
            raise MissingPackageError(
                f"{self.experiment}: the model's family, {family!r}, is not installed. It was defined by "
                f"{' and '.join(packages)}: install that."
            )

    def _family_packages(self) -> list[str]:
        """Packages that defined the model's family, with versions, as training or `save_pretrained` wrote them."""
        for file in (self.about, self.versions):
            try:
                record = json.loads(file.read_bytes())
                found = record.get("jointnmt", record)[FAMILY_PACKAGES]
                return [f"{name} {version}" for name, version in found.items()]
            except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
                continue  # not this file's, or damaged
        return []

    def model_digest(self) -> str:
        """SHA-256 of the weights' file, in hexadecimal."""
        return hash_file(self.model)

    def scored(self, step: int) -> Path:
        """The checkpoint of a validated step, which holds weights only."""
        return self.checkpoints / f"step-{step:08d}.safetensors"

    def translations(self, step: int, event: str) -> Path:
        """Path of the translations of the validation text, from a validation or the average at the end."""
        return self.validation / (f"step-{step:08d}.txt" if event == "validation" else f"{event}.txt")

    def is_trained(self) -> bool:
        """Whether a training has saved anything here."""
        return self.model.exists() or any(self.checkpoints.glob("*.safetensors"))

    def owns(self, path: Path) -> bool:
        """Whether a path is one that a training resumes from or loading needs, apart from the weights."""
        kept = (self.experiment, self.segmentation, self.checkpoints, self.log, self.validation, self.versions)
        return any(path.resolve().is_relative_to(each.resolve()) for each in kept)
