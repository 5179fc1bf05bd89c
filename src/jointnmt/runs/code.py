"""Digest of the code that computes a model, on which results depend like on weights, configuration and packages."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType

from torch import nn

from jointnmt.data.digests import hash_file

PACKAGE = Path(__file__).resolve().parents[1]

_BOTH = ("data", "evaluation", "models", "ops", "runs", "search", "text")
TRANSLATING = (*_BOTH, "translator")
TRAINING = (*_BOTH, "training")
"""Packages that translations and trainings, validation included, depend on."""

SUFFIXES = (".py", ".cpp", ".h")


def code_digest(model: nn.Module, parts: Sequence[str]) -> str:
    """SHA-256 of these parts of this package, and of the code that defines the model's classes elsewhere.

    That is the whole package of such a class or, if it is in a single file, this file and those beside it that it
    imports.
    """
    own = chain.from_iterable((PACKAGE / part).rglob("*") for part in parts)
    modules = {type(module).__module__ for module in model.modules()}
    others = chain.from_iterable(map(_files, modules))
    digest = hashlib.sha256()
    for path in sorted({*own, *others}):
        if path.suffix in SUFFIXES:
            digest.update(f"{path.name} {hash_file(path)}\n".encode())
    return digest.hexdigest()


def _files(name: str) -> Iterator[Path]:
    """The files of a module's package, or of a single-file module and those beside it that it imports."""
    root = name.partition(".")[0]
    if root in ("jointnmt", "torch"):
        return
    for folder in getattr(sys.modules.get(root), "__path__", ()):
        yield from Path(folder).rglob("*")
    waiting, seen = [name], set[str]()
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if path is None or name in seen:
            continue
        seen.add(name)
        yield path
        waiting += [
            each for each in _used(sys.modules[name]) if (beside := _path(each)) and beside.parent == path.parent
        ]


def _used(module: ModuleType) -> Iterator[str]:
    """Names of the modules that a module has imported, or from which it has imported a function or a class."""
    for value in list(vars(module).values()):
        name = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
        if isinstance(name, str):
            yield name


def _path(name: str) -> Path | None:
    """The file of a loaded module that is not a package."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return Path(file) if file and not hasattr(module, "__path__") else None
