"""Preprocessing of texts outside the event loop, so that it does not block other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")

SMALL = 2000
"""Most characters that are processed in the event loop, as starting another thread would take longer."""


async def aside(texts: Sequence[str], compute: Callable[[], Result]) -> Result:
    """The result of `compute`, which runs in another thread if the texts are long."""
    if sum(map(len, texts)) <= SMALL:
        return compute()
    return await asyncio.to_thread(compute)
