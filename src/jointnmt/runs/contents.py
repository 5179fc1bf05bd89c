"""What the values of a checkpoint tell of it: a state that a training goes on from, or weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_state(values: Mapping[str, Any]) -> bool:
    """Whether it is a state: weights with all that a training needs besides."""
    return "trainer" in values


def position_of(values: Mapping[str, Any]) -> Mapping[str, int]:
    """Where the training of a state was: `step`, updates in total, and within `epoch` the `update`.

    Raises:
        KeyError: of weights alone.
    """
    position: Mapping[str, int] = values["trainer"]["position"]
    return position


def steps_of(values: Mapping[str, Any]) -> list[int]:
    """The updates after which the weights were taken, several of an average; empty if it does not tell."""
    return [position_of(values)["step"]] if is_state(values) else list(values.get("steps", []))


def stored_precision(values: Mapping[str, Any]) -> str:
    """The precision that weights alone were written in."""
    return str(values.get("weights", "float32"))
