"""Which training a checkpoint is of: another one's, of a model that fits as well, would give other weights silently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jointnmt.config import differences, differences_by_key, in_words, merged
from jointnmt.errors import ModelError
from jointnmt.experiment import Experiment

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
"""Of the values of a checkpoint."""

START = "from"
"""Of what makes a training that one: the hash of the weights of `training.from`, wherever they are now."""

WEIGHTS = "weights"
"""Likewise: those of the training texts, unless all are 1."""

_SECTIONS = ("seed", "batches", "training", "validation")
"""Of a configuration. `runs.parts` compares what decides the output, a state the fingerprint of its data."""


class Changes(NamedTuple):
    """What a configuration changes when a training resumes by it, by key, as `differences` tells."""

    allowed: dict[str, str]
    forbidden: dict[str, str]


def changes(old: Mapping[str, Any], new: Experiment) -> Changes:
    """What `new` changes in the plain values `old`; its `precision: auto` is whatever the old one has found."""
    changed = differences_by_key(old, new.plain())
    if new.training.precision == "auto":
        changed.pop("training.precision", None)
    forbidden = {key: line for key, line in changed.items() if key not in MAY_CHANGE}
    return Changes({key: line for key, line in changed.items() if key in MAY_CHANGE}, forbidden)


def provenance(experiment: Experiment) -> dict[str, Any]:
    """What of a configuration makes a training that one and no other, as JSON-compatible values."""
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
    """Refuse a checkpoint of another training; what older versions wrote does not tell.

    Args:
        values: of the checkpoint.
        expected: the `provenance` that it should have; empty: not known.
        path: of the checkpoint.

    Raises:
        ModelError: naming the difference.
    """
    stored = values.get(TRAINING, {})
    if not isinstance(stored, dict):
        raise ModelError(f"{path}: does not tell which training it is of. Bring the right file back, or train again.")
    if not (stored and expected):
        return
    one, other = ({WEIGHTS: 1.0, **told} for told in (stored, expected))
    if changed := differences(merged(other, one), merged(one, other)):  # a key that one version lacks is none
        raise ModelError(
            f"{path}: is a checkpoint of another training: {in_words(changed)}. Bring the right file back, or "
            "train again."
        )
