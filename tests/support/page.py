"""What tests do on the page of the server, and read from it."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Locator, Page, expect

CLIPBOARD = "if (navigator.clipboard) navigator.clipboard.writeText = async (text) => { window.copied = text; };"
"""A script by which the page's clipboard can be read."""


def words(page: Page, model: str, line: int = 0) -> Locator:
    return page.get_by_label(f"Translation by {model}").locator("ol > li").nth(line).locator("[data-word]")


def text_of(page: Page, model: str, line: int = 0) -> str:
    item = page.get_by_label(f"Translation by {model}").locator("ol > li").nth(line)
    return str(
        item.evaluate(
            "each => [...each.childNodes].filter(n => n.className !== 'hint').map(n => n.textContent).join('')"
        )
    )


def settled(page: Page) -> None:
    expect(page.locator(".pending")).to_have_count(0)


def show(page: Page, view: str) -> None:
    page.get_by_role("tab", name=view).click()
    settled(page)


def copied(page: Page) -> Any:
    page.evaluate("window.copied = undefined")
    page.get_by_role("button", name="Copy JSON").locator("visible=true").click()
    page.wait_for_function("window.copied !== undefined")
    return json.loads(page.evaluate("window.copied"))
