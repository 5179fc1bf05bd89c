"""Models that come with the package, named `package:NAME`."""

from __future__ import annotations

import os
from pathlib import Path

from jointnmt.errors import ModelError

MODELS = Path(__file__).parent / "pretrained"
"""Folder of the models; in a clone, a link to the folder of this name in its root."""

CONFIGURATION_FILE, WEIGHTS_FILE = "experiment.yaml", "model.safetensors"
"""Files that every model has, by which its folder is recognised."""

OF_PACKAGE = "package:"
"""Prefix of names of the package's models and recipes, and of paths in it."""


def shipped_models() -> list[str]:
    """Names of the package's models."""
    return sorted(each.parent.name for each in MODELS.glob(f"*/{WEIGHTS_FILE}"))


def is_shipped(run: Path) -> bool:
    """Whether this names a model of the package, not only a recipe with the same prefix."""
    name = str(run)
    return name.startswith(OF_PACKAGE) and name.removeprefix(OF_PACKAGE) in shipped_models()


def is_model(name: str) -> bool:
    """Whether this names the folder of a model, or a model of the package."""
    return os.path.isfile(os.path.join(name, CONFIGURATION_FILE)) or is_shipped(Path(name))  # noqa: PTH113, PTH118 (may be too long)


def locate_run(run: Path) -> Path:
    """The directory of a run, given as a path or as `package:NAME`.

    Raises:
        ModelError: if the package has no such model.
    """
    name = str(run)
    if not name.startswith(OF_PACKAGE):
        return run
    name = name.removeprefix(OF_PACKAGE)
    if name not in shipped_models():
        raise ModelError(
            f"{run}: there is no such model in the package. It has: {', '.join(shipped_models())}.{ensemble_hint(run)}"
        )
    return MODELS / name


def ensemble_hint(run: Path) -> str:
    """A hint for messages about a model that was not found, if its name is an ensemble's; else empty."""
    hint = " Ensembles, A+B, are for translate, translate-corpus, score and evaluate only; in Python, give a list."
    return hint if "+" in str(run) else ""
