"""A real browser: Debian's Chromium by Playwright. Tests skip without it, or fail if JOINTNMT_BROWSER=required."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

WEB = Path(__file__).parents[2] / "web"
PATIENCE = 60_000
"""Timeout in milliseconds, for a loaded machine."""
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def missing(what: str) -> NoReturn:
    """Skip, or fail if these tests must run."""
    if os.environ.get("JOINTNMT_BROWSER") == "required":
        pytest.fail(f"JOINTNMT_BROWSER=required, but {what}")
    pytest.skip(what)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()


def open_page(context: BrowserContext) -> Page:
    """An empty page with timeouts for a busy machine."""
    found = context.new_page()
    found.set_default_timeout(PATIENCE)
    return found


def package(path: str) -> Path:
    """A file of an npm package that the page is built or tested with."""
    found = WEB / "node_modules" / path
    if not found.exists():
        missing(f"{path} is missing: npm ci --prefix web")
    return found


def watched(page: Page) -> list[str]:
    """Errors of a page from now on: those of its script, and those that it logs."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    return problems
