"""Digest of the code that computes a model, on which results depend like on weights, configuration and packages."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from torch import nn

from jointnmt.data.digests import hash_file

PACKAGE = Path(__file__).resolve().parents[1]

_BOTH = ("data", "evaluation", "models", "ops", "runs", "search", "text")
TRANSLATING = (*_BOTH, "translator")
TRAINING = (*_BOTH, "training")
"""Packages that translations and trainings, validation included, depend on."""

SUFFIXES = (".py", ".cpp", ".h")


def code_digest(model: nn.Module, parts: Sequence[str]) -> str:
    """SHA-256 of these parts of the package, and of the modules that define the model's classes."""
    own = chain.from_iterable((PACKAGE / part).rglob("*") for part in parts)
    modules = {type(module).__module__ for module in model.modules()}
    others = (getattr(sys.modules[name], "__file__", None) for name in modules if not name.startswith("torch."))
    digest = hashlib.sha256()
    for path in sorted({*own, *(Path(each) for each in others if each)}):
        if path.suffix in SUFFIXES:
            digest.update(f"{path.name} {hash_file(path)}\n".encode())
    return digest.hexdigest()
