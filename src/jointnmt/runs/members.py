"""The runs that a command is given in the place of one: an ensemble."""

from __future__ import annotations

from pathlib import Path

from jointnmt.errors import ConfigurationError

SIGN = "+"
"""Joins the runs of an ensemble."""


def members_of(run: Path) -> list[Path]:
    """The directories that a RUN of a command names: one, or several as A+B+C, an ensemble.

    Raises:
        ConfigurationError: if a name between two signs is missing.
    """
    parts = str(run).split(SIGN)
    if len(parts) == 1 or run.exists():
        return [run]
    if not all(parts):
        raise ConfigurationError(f"{run}: the runs of an ensemble are joined by {SIGN}, as in runs/s1{SIGN}runs/s2.")
    return list(map(Path, parts))
