"""The runs that a command is given in the place of one: an ensemble."""

from __future__ import annotations

from pathlib import Path

from jointnmt.errors import ConfigurationError
from jointnmt.shipped import locate_run

SIGN = "+"
"""Joins the runs of an ensemble."""


def members_of(run: Path) -> list[Path]:
    """The directories that a RUN of a command names: one, or several as A+B+C, an ensemble.

    Raises:
        ConfigurationError: if a name between two signs is missing.
        ModelError: if the package has no model of this name.
    """
    parts = str(run).split(SIGN)
    if len(parts) == 1 or run.exists():
        return [locate_run(run)]
    if not all(parts):
        raise ConfigurationError(f"{run}: the runs of an ensemble are joined by {SIGN}, as in runs/s1{SIGN}runs/s2.")
    return [locate_run(Path(part)) for part in parts]
