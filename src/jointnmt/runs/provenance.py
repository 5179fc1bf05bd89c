"""Provenance of checkpoints: one of another training with a model of the same shape would be used silently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jointnmt.config import differences, differences_by_key, in_words, merged
from jointnmt.errors import ModelError
from jointnmt.experiment import Experiment
from jointnmt.text.config import FILES

MAY_CHANGE = (
    "name",
    "data.root",
    "data.cache",
    "data.processes",
    "training.accelerator",
    "training.average_best",
    "training.checkpoint_every",
    "training.devices",
    "training.from",
    "training.log_every",
    "training.max_epochs",
    "training.max_updates",
    "training.nodes",
    "training.process_timeout",
    "training.sharded",
    "training.tensorboard",
    "validation.patience",
)
"""Keys that may change when a training resumes: they affect neither updates nor the choice of checkpoints so far."""

TRAINING = "training"
"""Key in the values of a checkpoint."""

START = "from"
"""Key in the provenance: hash of the weights of `training.from`, wherever they are now."""

WEIGHTS = "weights"
"""Key in the provenance: weights of the training texts, unless all are 1."""

_SECTIONS = ("seed", "batches", "training", "validation")
"""Sections of the configuration in the provenance. `runs.parts` compares those that determine the output, and a state
the fingerprint of its data."""


class Changes(NamedTuple):
    """Changes of the configuration when a training resumes, by key, as lines of `differences`."""

    allowed: dict[str, str]
    forbidden: dict[str, str]


def changes(old: Mapping[str, Any], new: Experiment) -> Changes:
    """The changes from the plain values `old` to `new`; `precision: auto` equals the precision chosen before."""
    changed = differences_by_key(old, new.plain())
    if new.training.precision == "auto":
        changed.pop("training.precision", None)
    moved = _moved_files(old, new)
    allowed = {key: line for key, line in changed.items() if key in MAY_CHANGE or key in moved}
    return Changes(allowed, {key: line for key, line in changed.items() if key not in allowed})


def _moved_files(old: Mapping[str, Any], new: Experiment) -> set[str]:
    """Keys of files that the segmentation was made from, which may be elsewhere now, if there were and are such."""
    before, now = (values.get("segmentation", {}) for values in (old, new.plain()))
    return {f"segmentation.{key}" for key in FILES.values() if before.get(key) and now.get(key)}


def provenance(experiment: Experiment) -> dict[str, Any]:
    """The settings that identify a training, as JSON-compatible values."""
    plain = {name: value for name, value in experiment.plain().items() if name in _SECTIONS}
    for name in MAY_CHANGE:
        section, _, key = name.partition(".")
        if section in plain and key:
            del plain[section][key]
    weights = [text.weight for text in experiment.data.train]
    if set(weights) != {1.0}:
        plain[WEIGHTS] = weights
    return plain


def check_provenance(values: Mapping[str, Any], expected: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint of another training; those of older versions do not state theirs.

    Args:
        values: values of the checkpoint.
        expected: the `provenance` that it should have; empty: unknown.
        path: path of the checkpoint.

    Raises:
        ModelError: naming the difference.
    """
    stored = values.get(TRAINING, {})
    if not isinstance(stored, dict):
        raise ModelError(f"{path}: does not state its training. Restore the right file, or train again.")
    if not (stored and expected):
        return
    one, other = ({WEIGHTS: 1.0, **facts} for facts in (stored, expected))
    if changed := differences(merged(other, one), merged(one, other)):  # keys missing in one version do not count
        raise ModelError(
            f"{path}: is a checkpoint of another training: {in_words(changed)}. Restore the right file, or train again."
        )
