"""The page and its readers: messages to them, and settings of theirs that it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.page import copied, settled, show, source_field, text_of, visited, words
from support.serving import live, services, write_model

SOURCE, OTHER = "der Hund sieht die Katze .", "die Katze hört nicht"
OWN = "the dog sees the cat ."
LAYERS = {"family": "transformer", "encoder_layers": 2, "decoder_layers": 2}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, Path] = {
        "grid": write_model(folder / "grid", seed=2, model={"num_layers": 2}),
        "transformer": write_model(folder / "transformer", seed=2, model=LAYERS),
    }
    with live(services(runs)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with a sentence in it; its script must not fail."""
    with visited(browser, address, harmless="503") as found:
        source_field(found).fill(SOURCE)
        for model in ("grid", "transformer"):
            expect(words(found, model).first).to_be_visible()
        yield found


def test_an_error_of_many_lines_is_said_once(page: Page) -> None:
    page.route("**/v1/translate/stream", lambda route: route.fulfill(status=503, json={"error": "It is busy."}))
    source_field(page).fill("\n".join(f"der Hund {number}" for number in range(30)))
    shown = page.get_by_label("Translation by grid")
    expect(shown.get_by_text("It is busy.")).to_have_count(30)
    expect(shown.get_by_role("alert")).to_have_count(1)


def test_of_a_sentence_that_was_deleted_no_cell_is_described(page: Page) -> None:
    show(page, "Grid")
    page.locator(".grid-cells").hover()
    page.get_by_label("Sentence", exact=True).fill("")
    expect(page.get_by_role("alert")).to_contain_text("Type a sentence")
    page.locator("[role=application]").first.dispatch_event("pointerleave")
    page.get_by_label("Sentence", exact=True).fill(OTHER)
    expect(page.locator(".grid-cells")).to_be_visible()
    assert copied(page)["cell"] is not None


def test_ones_own_translation_stays_while_the_sentence_is_edited(page: Page) -> None:
    source_field(page).fill(f"{SOURCE}\n{OTHER}")
    expect(words(page, "grid", 1).first).to_be_visible()
    source_field(page).press("Control+Home")
    show(page, "Search")
    own, sentence = (page.get_by_role("textbox", name=name) for name in ("Your own translation", "Sentence"))
    expect(sentence).to_have_value(SOURCE)
    own.fill(OWN)
    expect(page.locator("[data-own]").first).to_be_visible()
    sentence.fill(OTHER)  # as the second line, which differs
    sentence.blur()
    settled(page)
    expect(own).to_have_value(OWN)
    page.get_by_role("button", name="Next sentence").click()
    expect(sentence).to_have_value(OTHER)
    expect(own).to_have_value("")


def test_keys_with_modifiers_are_the_browsers(page: Page) -> None:
    """All except Ctrl-Z, which undoes a change."""

    def taken(selector: str, key: str, modifier: str) -> bool:
        script = """(each, [key, modifier]) => !each.dispatchEvent(
          new KeyboardEvent("keydown", { key, [modifier]: true, bubbles: true, cancelable: true }))"""
        return bool(page.locator(selector).locator("visible=true").first.evaluate(script, [key, modifier]))

    def all_taken(selector: str, *keys: str) -> list[tuple[str, str]]:
        modifiers = ("altKey", "ctrlKey", "metaKey")
        return [(key, each) for key in keys for each in modifiers if taken(selector, key, each)]

    arrows = ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End")
    assert all_taken(".target [data-word]", *arrows, "Enter", "x", "z") == [("z", "ctrlKey"), ("z", "metaKey")]
    page.get_by_role("tab", name="Translate").focus()
    assert all_taken("[role=tab]", *arrows) == []
    expect(page.get_by_role("tab", name="Translate")).to_have_attribute("aria-selected", "true")
    for view, more in (("Grid", ("PageUp", "PageDown")), ("Search", ())):
        show(page, view)
        assert all_taken("[role=application]", *arrows, *more) == []


def test_texts_have_their_language(page: Page) -> None:
    languages = [
        text.first.evaluate("each => each.closest('[lang]').lang")
        for text in (source_field(page), page.locator(".source .words"), words(page, "grid"))
    ]
    assert languages == ["de", "de", "en"]


def test_screen_readers_are_told_of_translations(page: Page) -> None:
    said = page.locator(".unseen[role=status]")
    page.get_by_role("checkbox", name="transformer").uncheck()
    source_field(page).fill(f"{OTHER}\nder Hund\n\ndie Katze")
    expect(said).to_have_text("Translated by grid: 3 sentences")
    source_field(page).fill(f"{OTHER}\n{SOURCE}\n\ndie Katze")
    expect(said).not_to_have_text("Translated by grid: 3 sentences")
    assert said.text_content() == f"Translated by grid: {text_of(page, 'grid', 1)}"


def test_words_look_clickable_only_where_they_are(page: Page) -> None:
    style = "each => getComputedStyle(each).cursor"
    assert words(page, "grid").first.evaluate(style) == "pointer"
    show(page, "Compare")
    compared = page.locator(".compare-view .lines [data-word], .compare-view .lines")
    assert set(compared.evaluate_all(f"all => all.map({style})")) == {"auto"}


def test_the_address_turns_to_a_view(page: Page) -> None:
    for view in ("Search", "Grid", "Translate"):
        page.evaluate(f"location.hash = '{view.lower()}'")
        expect(page.get_by_role("tab", name=view)).to_have_attribute("aria-selected", "true")
    page.evaluate("location.hash = 'elsewhere'")
    expect(page.get_by_role("tab", name="Translate")).to_have_attribute("aria-selected", "true")
