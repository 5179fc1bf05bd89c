"""Preparation of texts, which must not keep the event loop from other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")

SMALL = 2000
"""Characters that are prepared at once: another thread would take longer to begin."""


async def aside(texts: Sequence[str], compute: Callable[[], Result]) -> Result:
    """What is computed from these texts, in another thread if they are long."""
    if sum(map(len, texts)) <= SMALL:
        return compute()
    return await asyncio.to_thread(compute)
