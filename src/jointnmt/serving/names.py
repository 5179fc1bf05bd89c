"""Models named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jointnmt.errors import ConfigurationError
from jointnmt.runs.members import SIGN, members_of


def named_paths(models: Sequence[str]) -> dict[str, Path]:
    """Names and directories of models given as `RUN` or `NAME=RUN`; without a name, the directory's counts.

    The RUN of an ensemble, `A+B`, stays in that form.

    Raises:
        ConfigurationError: if there is no model, or a name occurs twice.
        ModelError: if the package has no model of this name.
    """
    found: dict[str, Path] = {}
    for model in models:
        name, equals, path = model.partition("=")
        members = members_of(Path(path if equals else model))
        run = Path(SIGN.join(map(str, members)))
        name = name if equals else SIGN.join(each.resolve().name for each in members)
        if not name:
            raise ConfigurationError(f"{model}: a model needs a name. Give it as NAME=RUN.")
        if name in found:
            raise ConfigurationError(
                f"{model}: a model named {name} is already given ({found[name]}). Give another name: NAME={run}."
            )
        found[name] = run
    if not found:
        raise ConfigurationError("There is no model. Give at least one RUN directory.")
    return found
