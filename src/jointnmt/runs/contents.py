"""Kind of a checkpoint by its values: a state from which a training resumes, or weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_state(values: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is a state: weights with everything else that a training needs."""
    return "trainer" in values


def position_of(values: Mapping[str, Any]) -> Mapping[str, int]:
    """Position of the training of a state: `step`, updates in total, and `update` within `epoch`.

    Raises:
        KeyError: for weights alone.
    """
    return values["trainer"]["position"]


def steps_of(values: Mapping[str, Any]) -> list[int]:
    """The updates after which the weights were taken, several for an average; empty if not stated."""
    return [position_of(values)["step"]] if is_state(values) else list(values.get("steps", []))


def stored_precision(values: Mapping[str, Any]) -> str:
    """The precision in which weights alone were written."""
    return str(values.get("weights", "float32"))
