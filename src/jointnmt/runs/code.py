"""Digest of the code that computes a model, on which results depend like on weights, configuration and packages."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from torch import nn

from jointnmt.files import hash_file

PACKAGE = Path(__file__).resolve().parents[1]

_BOTH = ("data", "evaluation", "models", "ops", "runs", "search", "text")
TRANSLATING = (*_BOTH, "translator")
TRAINING = (*_BOTH, "training")
"""Packages that translations and trainings, validation included, depend on."""

SUFFIXES = (".py", ".cpp", ".h")


def code_digest(model: nn.Module, parts: Sequence[str], named: Iterable[str] = ()) -> str:
    """SHA-256 of these parts of this package, and of the code that defines the model's classes elsewhere.

    That is the whole package of such a class or, if it is in a single file, this file and those beside it that it
    imports. `named` are the names of further modules that results depend on.
    """
    own = chain.from_iterable((PACKAGE / part).rglob("*") for part in parts)
    modules = {type(module).__module__ for module in model.modules()} | {*named}
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
        yield from (path for path in Path(folder).rglob("[!.]*") if path.is_file())
    waiting, seen = [getattr(sys.modules.get(name), "__file__", None)], set[Path]()
    while waiting:
        path = Path(waiting.pop() or "")
        if path.is_file() and path not in seen:
            seen.add(path)
            yield path
            waiting += [str(path.with_name(f"{each}.py")) for each in _imported(path)]


def _imported(path: Path) -> Iterator[str]:
    """The top-level modules that a file imports, as long as it is Python."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (each.name.partition(".")[0] for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]
