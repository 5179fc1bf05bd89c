"""Ensembles on the command line: several runs in place of one."""

from __future__ import annotations

from pathlib import Path

from jointnmt.errors import ConfigurationError
from jointnmt.shipped import locate_run

SIGN = "+"
"""Separator of the runs of an ensemble."""


def members_of(run: Path) -> list[Path]:
    """The directories that a command's RUN names: one, or several of an ensemble, A+B+C.

    Raises:
        ConfigurationError: if a name between two separators is missing.
        ModelError: if the package has no model of this name.
    """
    parts = str(run).split(SIGN)
    if len(parts) == 1 or run.exists():
        return [locate_run(run)]
    if not all(parts):
        raise ConfigurationError(f"{run}: the runs of an ensemble are joined by {SIGN}, as in runs/s1{SIGN}runs/s2.")
    return [locate_run(Path(part)) for part in parts]
