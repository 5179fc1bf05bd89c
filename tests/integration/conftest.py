"""Fixtures of several files of integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; skips if there is none."""
    from support.browser import chromium  # only some of these tests need it

    with chromium() as found:
        yield found
