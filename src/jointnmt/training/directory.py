"""The RUN directory of a training: checks before it starts or resumes, and all that it writes."""

from __future__ import annotations

import fcntl
import json
import logging
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from jointnmt.bounded_yaml import parse_yaml
from jointnmt.config import differences, in_words
from jointnmt.errors import ConfigurationError, DataError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.files import remove_unfinished, write_text
from jointnmt.runs import checkpoint
from jointnmt.runs.contents import steps_of
from jointnmt.runs.directory import FAMILY_PACKAGES, RunDirectory
from jointnmt.runs.folder import new_folder
from jointnmt.runs.mirror import Mirror
from jointnmt.runs.parts import PARTS, Parts
from jointnmt.runs.provenance import START, TRAINING, changes, check_provenance, provenance
from jointnmt.text.segmentation import Segmentation, hash_files

logger = logging.getLogger(__name__)

MADE_OF = "made-of"
"""A file in the folder of a segmentation, but no part of it: the hashes of its inputs and of its files, and perhaps of
the files that its merges are given by."""

PACKAGES = ("jointnmt", "torch", "lightning-fabric", "numpy", "tokenizers", "sacrebleu", "sacremoses", "safetensors")


class TrainingDirectory(RunDirectory):
    """A RUN directory that a training writes to; methods are in the order of their use."""

    def __init__(self, path: Path, mirror: Mirror | None = None) -> None:
        """A RUN directory at `path`; each saved state is copied to `mirror`."""
        super().__init__(path)
        self.mirror = mirror
        self.parts: Parts | None = None
        """Configuration and segmentation that written weights belong to; see `bind`."""
        self.provenance: dict[str, Any] = {}
        """Provenance of written weights: the training that they come from."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold an exclusive lock on the directory, which the system releases when the process ends.

        Raises:
            ConfigurationError: if another training holds it, or the directory has other content than a run.
        """
        self._check_is_run()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigurationError(f"{self.path}: another training is running in this directory.") from error
            yield

    def _check_is_run(self) -> None:
        """Check that the directory is empty or a run."""
        empty = not self.path.exists() or all(entry.name.startswith(".") for entry in self.path.iterdir())
        if not (empty or self.experiment.exists()):
            raise ConfigurationError(f"{self.path}: is not empty, and not a run. Choose another directory for --out.")

    def fetch(self, experiment: Experiment) -> None:
        """Fetch the mirror's state if it is newer.

        Raises:
            ConfigurationError: if it belongs to another training than the one here or, if there is none, than
                `experiment`; or if the mirror is inside this directory.
            ModelError: if it is damaged.
        """
        mirror = self.mirror
        if mirror is None:
            return
        if mirror.lies_in(self.path):
            raise ConfigurationError(
                f"{mirror.address}: is inside {self.path}, so the mirror would be lost with it, and contain itself. "
                "Choose an address outside of it for --mirror."
            )
        if (step := mirror.newest_step()) < 0:
            return
        mine = self.states.newest_step()
        theirs = Experiment.parse(parse_yaml(mirror.experiment()), mirror.address)
        wanted = self.read_experiment() if mine >= 0 else experiment
        if forbidden := changes(theirs.plain(), wanted).forbidden:
            raise ConfigurationError(
                f"{mirror.address}: is the mirror of a training with another configuration than "
                f"{self.path if mine >= 0 else 'the recipe'}: {in_words(forbidden.values())}. Choose another address "
                "for --mirror."
            )
        if step > mine:
            mirror.pull(self.path)

    def open(self, experiment: Experiment) -> None:
        """Create RUN, or check that this experiment may resume in it, and write its configuration.

        If nothing was trained yet, for example because of bad data, any experiment may start in it.

        Raises:
            ConfigurationError: if the directory is not a run, or a run with another configuration.
            ModelError: if it has weights but no state to resume from, as they would be overwritten.
        """
        if self.experiment.exists():
            self._check_resumable(experiment)
            if self.is_trained() and not self.states.exist():
                raise ModelError(
                    f"{self.path}: has a model, but no training state to resume from ({self.states.last.name} in "
                    f"{self.checkpoints.name}/), and starting again would overwrite the model. Restore the state, "
                    "choose another directory for --out, or delete this one."
                )
        self._check_is_run()
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_experiment(experiment)  # first: it marks the directory as a run
        for directory in (self.checkpoints, self.validation):
            directory.mkdir(exist_ok=True)
        for directory in (self.path, self.checkpoints, self.validation):
            remove_unfinished(directory, ".*.new", ".tmp*")  # the latter from safetensors

    def _check_resumable(self, experiment: Experiment) -> None:
        allowed, forbidden = changes(self.read_experiment().plain(), experiment)
        other = in_words(forbidden.values())
        if forbidden and not self.is_trained():
            logger.info("%s: nothing was trained here yet; starting with another configuration: %s", self.path, other)
            return
        if forbidden:
            raise ConfigurationError(
                f"{self.path}: was made with another configuration: {other}. Choose another directory for --out, or "
                "restore the old configuration."
            )
        if allowed:
            logger.info("%s: resumes with a changed configuration: %s", self.path, "; ".join(allowed.values()))

    def holds_segmentation_of(self, made_of: str) -> bool:
        """Whether there is an undamaged segmentation here that was made from inputs with this hash."""
        try:
            return self._made_of()[:2] == [made_of, hash_files(self.segmentation)]
        except (OSError, ValueError, ModelError):
            return False

    def save_segmentation(self, segmentation: Segmentation, made_of: str, given: str = "") -> None:
        """Write the segmentation atomically, with the hash of its inputs, and that of the files of given merges.

        Raises:
            ConfigurationError: if there is one.
        """
        with new_folder(self.segmentation) as unfinished:
            segmentation.save(unfinished)
            (unfinished / MADE_OF).write_text(
                f"{made_of} {hash_files(unfinished)} {given}".rstrip() + "\n", encoding="utf-8"
            )

    def check_given(self, given: str) -> None:
        """Check that the files of given merges are those that the segmentation here was made from, as far as known.

        Raises:
            DataError: if they have changed.
        """
        try:
            before = self._made_of()[2:]
        except (OSError, ValueError):
            return
        if given and before not in ([], [given]):
            raise DataError(
                f"{self.path}: the files of segmentation.from have changed since this run began. Restore the old "
                "files, or choose another directory for --out."
            )

    def _made_of(self) -> list[str]:
        return (self.segmentation / MADE_OF).read_text(encoding="utf-8").removesuffix("\n").split(" ")

    def bind(self, experiment: Experiment) -> None:
        """Record this experiment and the segmentation here in every checkpoint written from now on.

        Raises:
            ModelError: if there is no segmentation.
        """
        self.parts = Parts.of(experiment, self.segmentation)
        start = experiment.training.start
        self.provenance = {**provenance(experiment), START: "" if start is None else self._start_digest(start)}

    def _start_digest(self, start: Path) -> str:
        """Hash of the weights that this training starts from; if they no longer exist, the one in its state."""
        if (model := RunDirectory(start)).model.is_file():
            return model.model_digest()
        saved = self.states.read()
        said = {} if saved is None else saved.values.get(TRAINING)
        return str(said.get(START, "")) if isinstance(said, dict) else ""

    def check_checkpoint(self, values: Mapping[str, Any], path: Path) -> None:
        """Check that a checkpoint with these values belongs to the training recorded by `bind`.

        Raises:
            ModelError: naming what differs.
        """
        if self.parts is not None:
            self.parts.check(values, path)
            check_provenance(values, self.provenance, path)

    def check_text(self, which: str, old: str | None, new: str | None) -> None:
        """Check that the fingerprint of a text is the one in the state; None: there is none.

        Raises:
            DataError: if the text has changed.
        """
        if old is not None and new is not None and old != new:
            raise DataError(
                f"{self.path}: the {which} data has changed since this run began. Restore the old files, or choose "
                "another directory for --out."
            )

    def write_versions(
        self, facts: dict[str, Any], code: str, others: Sequence[str] = (), extensions: Sequence[str] = ()
    ) -> None:
        """Write versions of packages, the digest of the code, and `facts`.

        The packages include `others`, which define the family, and `extensions`, which define optimiser and schedule.

        Warns if a run resumes with other versions, or with other code under the same version.
        """
        packages = {package: version(package) for package in (*PACKAGES, *others, *extensions)}
        packages["python"] = platform.python_version()
        if self.versions.exists():
            try:
                record = json.loads(self.versions.read_text(encoding="utf-8"))
                old, old_code = dict(record["packages"]), record.get("code", code)
            except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
                old, old_code = {}, code
                logger.warning("%s: is damaged, and is written again", self.versions)
            if changed := differences(old or packages, packages):
                logger.warning("%s: resumes with other versions, results may differ: %s", self.path, "; ".join(changed))
            elif old_code != code:
                logger.warning("%s: resumes with changed code; results may differ", self.path)
        own = {name: packages[name] for name in others}
        record = {"packages": packages, FAMILY_PACKAGES: own, "code": code, "platform": platform.platform(), **facts}
        write_text(self.versions, json.dumps(record, indent=2) + "\n")

    def write_weights(self, path: Path, weights: dict[str, Tensor], steps: list[int]) -> None:
        """Write weights; `steps` are the updates that they were taken after, several if averaged."""
        checkpoint.write(path, weights, {"steps": steps, **self._origin()})

    def write_translations(self, step: int, event: str, translations: Sequence[str]) -> None:
        """Write the translations of the validation text."""
        write_text(self.translations(step, event), "".join(f"{line}\n" for line in translations))

    def save(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Write the last state, keep the previous one, and delete checkpoints that neither of them needs."""
        self.states.write(tensors, {**values, **self._origin()})
        self._prune()
        if self.mirror is not None:
            try:
                self.mirror.push(self.path, self.states.newest_step())
            except ConfigurationError as error:
                logger.warning("%s The training continues; the next state will be copied again.", error)

    def _prune(self) -> None:
        """Delete scored checkpoints that neither the last nor the previous state keeps, if both can be read."""
        try:
            keep = {self.scored(step) for step in self.states.steps_kept()}
        except ModelError as error:
            why = error.__cause__ or error
            logger.warning("%s: a state cannot be read (%s), so no weights are deleted yet", self.checkpoints, why)
            return
        for path in self.checkpoints.glob("step-*.safetensors"):
            if path not in keep:
                path.unlink()

    def write_result(self, weights: dict[str, Tensor], steps: list[int], candidates: list[int]) -> None:
        """Write the weights for translation, the result of a finished training.

        `steps` are as in `write_weights`; `candidates` are the updates of the weights averaged for comparison.
        """
        values = {"steps": steps, "candidates": candidates, **self._origin()}
        checkpoint.write(self.model, weights, values)
        self.mirror_result()

    def mirror_result(self) -> None:
        """Copy a finished training to the mirror, if there is one.

        Raises:
            ConfigurationError: if the mirror cannot be written.
        """
        if self.mirror is not None:
            self.mirror.push(self.path, self.states.newest_step())

    def holds_result_of(self, candidates: list[int]) -> bool:
        """Whether undamaged weights for translation exist that were chosen from the weights of these updates."""
        try:
            values = checkpoint.read(self.model)[1]
            self.check_checkpoint(values, self.model)
            return bool(values.get("candidates", steps_of(values)) == candidates)
        except (ModelError, KeyError):
            return False

    def _origin(self) -> dict[str, Any]:
        return {} if self.parts is None else {PARTS: self.parts.plain(), TRAINING: self.provenance}
