"""Which of many cases the fast tests run."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(names: Iterable[str], fast: Collection[str]) -> list[Any]:
    """Parameters of a test that the fast tests run for those in `fast` only; all others are marked as slow."""
    names = list(names)
    assert set(fast) <= set(names)
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]
