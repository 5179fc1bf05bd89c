"""What several files of integration tests are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, or a skip where there is none."""
    from support.browser import chromium  # not for all of these tests

    with chromium() as found:
        yield found
