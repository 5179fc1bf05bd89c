"""Selection of cases for the fast tests."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(names: Iterable[str], fast: Collection[str]) -> list[Any]:
    """Parameters of a test; those that are not in `fast` are marked as slow."""
    names = list(names)
    assert set(fast) <= set(names)
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]
