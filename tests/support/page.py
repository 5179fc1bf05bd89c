"""Actions of tests on the server's page, and readings of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from support.browser import open_page, watched

CLIPBOARD = "if (navigator.clipboard) navigator.clipboard.writeText = async (text) => { window.copied = text; };"
"""Script that makes the page's clipboard readable."""


@contextmanager
def visited(browser: Browser, address: str, harmless: str = "") -> Iterator[Page]:
    """The page of a server; its script must not fail, nor log an error that does not contain `harmless`."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(CLIPBOARD)
    found = open_page(context)
    problems = watched(found)
    found.goto(address)
    expect(source_field(found)).to_be_visible()
    yield found
    context.close()
    assert [each for each in problems if not harmless or harmless not in each] == []


def source_field(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Source text")


def words(page: Page, model: str, line: int = 0) -> Locator:
    return page.get_by_label(f"Translation by {model}").locator(f"ol [data-line='{line}']").locator("[data-word]")


def text_of(page: Page, model: str, line: int = 0) -> str:
    item = page.get_by_label(f"Translation by {model}").locator(f"ol [data-line='{line}']")
    return str(
        item.evaluate(
            "each => [...each.childNodes].filter(n => n.className !== 'hint').map(n => n.textContent).join('')"
        )
    )


def settled(page: Page) -> None:
    """Wait until no shown part is pending; a hidden view stays as it was until it is shown."""
    expect(page.locator(".pending:visible")).to_have_count(0)


def show(page: Page, view: str) -> None:
    page.get_by_role("tab", name=view).click()
    settled(page)


def copied(page: Page) -> Any:
    page.evaluate("window.copied = undefined")
    page.get_by_role("button", name="Copy JSON").locator("visible=true").click()
    page.wait_for_function("window.copied !== undefined")
    return json.loads(page.evaluate("window.copied"))
