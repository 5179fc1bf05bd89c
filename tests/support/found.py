"""Made-up input that once ended in a traceback, took too long or said too much; tried again with every run of tests."""

from __future__ import annotations

from typing import Any

FOUND_RECIPES: list[bytes] = []

FOUND_SETTINGS: list[str] = []

FOUND_TEXTS: list[bytes] = []

FOUND_HEADERS: list[Any] = []
