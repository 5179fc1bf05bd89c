"""The page with answers that fail, are late or are no longer needed, and what it shows meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, Request, Route, expect

from support.page import copied, settled, show, source_field, text_of, visited, words
from support.serving import live, services, wait_until, write_model

SOURCE, OTHER = "der Hund sieht die Katze .", "die Katze hört nicht"
LAYERS = {"family": "transformer", "encoder_layers": 2, "decoder_layers": 2}
MODELS = ("grid", "transformer", "third")
STREAM, ALTERNATIVES = "**/v1/translate/stream", "**/v1/alternatives"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a limit of eight tokens that reports only the mean over heads of a grid's attention."""
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, Path] = {
        "grid": write_model(folder / "grid", seed=2, model={"num_layers": 2}),
        "transformer": write_model(folder / "transformer", seed=2, model=LAYERS),
        "third": write_model(folder / "third", seed=3, model=LAYERS),
    }
    with live(services(runs, limits={"sentence_tokens": 8, "grid_weights": 10})) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with visited(browser, address, harmless="503") as found:
        yield found


def fill(page: Page, *lines: str) -> None:
    """Translate lines, and inspect the first one."""
    source_field(page).fill("\n".join(lines))
    for number, line in enumerate(lines):
        for model in MODELS if line else ():
            expect(words(page, model, number).first).to_be_visible()
    source_field(page).press("Control+Home")
    if len(lines) > 1:  # the page learns of the caret by an event, in the next frame
        expect(page.get_by_label("Translation by grid").locator("[data-line='0']")).to_have_class("current")


def body(request: Request) -> dict[str, Any]:
    """The JSON body of a request."""
    found: dict[str, Any] = json.loads(request.post_data or "{}")
    return found


class Held:
    """Requests that are held without an answer until released."""

    def __init__(self, page: Page, path: str, chosen: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        self.routes: list[Route] = []
        self._page, self._path, self._chosen = page, path, chosen
        page.route(path, self._hold)

    def _hold(self, route: Route) -> None:
        if self._chosen(body(route.request)):
            self.routes.append(route)
        else:
            route.continue_()

    def release(self) -> None:
        """Release the held requests, and all later ones."""
        self._page.unroute(self._path)
        for route in self.routes:
            with suppress(Error):  # aborted by the page
                route.continue_()

    def wait(self, number: int = 1) -> None:
        """Wait until so many are held."""
        for _ in range(600):
            if len(self.routes) >= number:
                return
            self._page.wait_for_timeout(50)
        raise AssertionError(f"{len(self.routes)} requests came, not {number}")


def asked(page: Page, path: str) -> list[Request]:
    """The requests of a route from now on."""
    found: list[Request] = []
    page.on("request", lambda request: found.append(request) if request.url.endswith(path) else None)
    return found


def is_focused(page: Page, script: str) -> bool:
    """Whether a condition holds for the focused element, `each`."""
    return bool(page.evaluate(f"((each) => {script})(document.activeElement)"))


def test_a_line_that_is_refused_leaves_the_others(page: Page) -> None:
    source_field(page).fill(f"der Hund\n{'der ' * 20}\ndie Katze")
    for model in MODELS:
        expect(words(page, model, 0).first).to_be_visible()
        expect(words(page, model, 2).first).to_be_visible()
        expect(page.get_by_label(f"Translation by {model}").get_by_role("alert")).to_contain_text("21 tokens")
    before = asked(page, "stream")
    source_field(page).fill("der Hund\nder Mann\ndie Katze")
    for model in MODELS:
        expect(words(page, model, 1).first).to_be_visible()
    assert [body(request)["texts"] for request in before] == [["der Mann"]] * 3


def test_what_failed_is_tried_again(page: Page) -> None:
    page.route(STREAM, lambda route: route.fulfill(status=503, json={"error": "The server is busy."}))
    source_field(page).fill("der Hund\ndie Katze")
    expect(page.locator(".error").filter(has_text="busy")).to_have_count(6)
    page.unroute(STREAM)
    source_field(page).press("Control+Enter")
    for model in MODELS:
        expect(words(page, model, 1).first).to_be_visible()
    expect(page.locator(".error").filter(has_text="busy")).to_have_count(0)


def test_looking_at_another_line_does_not_begin_the_translation_again(page: Page) -> None:
    held = Held(page, STREAM)
    source_field(page).fill("\n".join([SOURCE, OTHER, "der Hund"]))
    held.wait(3)
    for key in ("Control+Home", "ArrowDown", "ArrowDown"):
        source_field(page).press(key)
        page.wait_for_timeout(50)
    page.get_by_role("checkbox", name="third").uncheck()
    page.wait_for_timeout(100)
    assert len(held.routes) == 3
    held.release()
    expect(words(page, "grid", 2).first).to_be_visible()


def change_word(page: Page, model: str, word: str) -> None:
    words(page, model).nth(0).click()
    page.get_by_role("combobox", name="Another word").fill(word)
    page.keyboard.press("Enter")


def test_a_late_answer_is_not_shown(page: Page) -> None:
    fill(page, SOURCE)
    before = text_of(page, "grid")
    held = Held(page, ALTERNATIVES, lambda asked: bool(asked["prefix"]))
    change_word(page, "grid", "not")
    expect(page.get_by_text("Begins with “not”")).to_be_visible()
    held.wait()
    page.get_by_role("button", name="Undo the change").click()
    expect(page.locator(".lines .pending")).to_have_count(0)
    assert is_focused(page, "each.dataset.word === '0'"), "the button is gone"
    ended: list[Request] = []
    page.on("requestfinished", lambda request: ended.append(request))
    held.release()
    page.get_by_role("tab", name="Search").click()  # the server answers one after the other
    wait_for(page, lambda: any("search" in request.url for request in ended))
    show(page, "Translate")
    assert text_of(page, "grid") == before
    expect(page.get_by_text("Begins with")).to_have_count(0)


@pytest.mark.parametrize("view", ["Grid", "Search"])
def test_a_picture_of_another_sentence_is_marked_and_not_copied(page: Page, view: str) -> None:
    fill(page, SOURCE)
    show(page, view)
    held = Held(page, STREAM)
    page.get_by_role("textbox", name="Sentence").fill(OTHER)
    held.wait()
    expect(page.locator(f".{view.lower()}-view.pending")).to_be_visible()
    page.get_by_role("button", name="Copy JSON").locator("visible=true").click()
    expect(page.locator(".unseen[role=status]")).to_contain_text("Not done: there is no picture yet.")
    held.release()
    settled(page)
    assert copied(page)


def test_an_answer_leaves_the_reader_where_they_are(page: Page) -> None:
    fill(page, SOURCE)
    held = Held(page, ALTERNATIVES, lambda asked: bool(asked["prefix"]))
    change_word(page, "grid", "not")
    held.wait()
    source_field(page).click()
    held.release()
    settled(page)
    expect(words(page, "grid").first).to_have_text("not")
    assert is_focused(page, "each.tagName === 'TEXTAREA'")


def test_another_models_answer_does_not_move_what_is_open(page: Page) -> None:
    held = Held(page, STREAM, lambda asked: asked["model"] == "grid")
    words_come = Held(page, ALTERNATIVES)
    source_field(page).fill(SOURCE)
    held.wait()
    words(page, "transformer").nth(0).click()
    words_come.wait()
    place = page.locator(".popover").bounding_box()
    held.release()
    expect(words(page, "grid").first).to_be_visible()
    expect(page.locator("[data-word][aria-expanded]")).to_have_count(1)
    words_come.release()
    expect(page.locator(".popover [role=option]").first).to_be_visible()
    now = page.locator(".popover").bounding_box()
    assert place is not None and now is not None and now["x"] == place["x"]


def test_an_input_method_has_the_keys_while_it_composes(page: Page) -> None:
    fill(page, SOURCE)
    words(page, "grid").nth(0).click()
    page.get_by_role("combobox", name="Another word").evaluate(
        """each => ["Enter", "Escape"].forEach((key) =>
          each.dispatchEvent(new KeyboardEvent("keydown", { key, isComposing: true, bubbles: true })))"""
    )
    expect(page.locator(".popover")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".popover")).to_have_count(0)


def test_the_models_that_are_chosen_are_compared_once(page: Page) -> None:
    fill(page, SOURCE, "der Hund")
    requests = asked(page, "compare")
    show(page, "Compare")
    one, other = page.get_by_label("One", exact=True), page.get_by_label("Other", exact=True)
    one.focus()
    one.select_option("third")
    other.focus()
    other.select_option("grid")
    settled(page)
    assert (one.input_value(), other.input_value()) == ("third", "grid")
    assert copied(page)["models"] == ["third", "grid"]
    page.get_by_label("Theme").select_option("dark")
    show(page, "Translate")
    show(page, "Compare")
    bodies = [request.post_data for request in requests]
    assert len(bodies) == len(set(bodies)) == 3
    tokens = page.get_by_label("Token by token")
    tokens.focus()
    tokens.select_option(index=1)
    expect(tokens).to_be_focused()


def test_cells_are_asked_for_when_the_reader_stays(page: Page) -> None:
    fill(page, SOURCE)
    with page.expect_response("**/inspect/cell"):  # from the first one
        show(page, "Grid")
    requests = asked(page, "inspect/cell")
    page.get_by_role("application", name="Grid of").evaluate(
        """each => ["Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"].forEach((key) =>
          each.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })))"""
    )
    wait_for(page, lambda: len(requests) > 0)
    page.wait_for_timeout(400)
    assert [body(request)["source_position"] for request in requests] == [2]


def wait_for(page: Page, condition: Callable[[], object]) -> None:
    """Wait, while the page's events come in."""

    def true_by_now() -> object:
        page.wait_for_timeout(20)
        return condition()

    wait_until(true_by_now)


def test_the_slider_can_be_dragged(page: Page) -> None:
    fill(page, SOURCE)
    show(page, "Grid")
    page.get_by_label("Colour", exact=True).select_option("norm-grid")
    slider = page.get_by_role("slider")
    slider.fill("0")
    box = slider.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, y)
    page.mouse.down()
    places = []
    for share in (0.5, 0.97, 0.5):
        page.mouse.move(box["x"] + share * box["width"], y)
        places.append(slider.input_value())
    page.mouse.up()
    assert places == ["1", "2", "1"]
    expect(page.get_by_text("Layer: layer 1")).to_be_visible()
    assert copied(page)["layer"] == "layer 1"


def test_what_is_typed_while_the_server_looks_for_sentences_is_kept(page: Page) -> None:
    fill(page, "Hund sieht . Katze hört")
    held = Held(page, "**/v1/sentences")
    field = source_field(page)
    field.press("Control+End")
    field.press_sequentially(" die")
    held.wait()
    field.evaluate("each => each.setSelectionRange(4, 4)")
    field.press_sequentially("und ")
    held.release()
    page.wait_for_timeout(300)
    assert field.input_value() == "Hundund  sieht . Katze hört die"
    assert field.evaluate("each => each.selectionStart") == 8
    settled(page)


def test_a_sentence_beside_a_picture_may_become_two(page: Page) -> None:
    fill(page, SOURCE, "der Hund")
    show(page, "Grid")
    held = Held(page, STREAM)
    page.get_by_label("Sentence", exact=True).fill("Hund sieht . Katze hört")
    expect(page.get_by_text("1 of 3")).to_be_visible()
    page.get_by_role("tab", name="Translate").click()  # a hidden picture may wait forever
    held.release()
    settled(page)
    assert source_field(page).input_value() == "Hund sieht . Katze hört\nder Hund"


def test_two_sentences_beside_a_picture_may_be_typed_on(page: Page) -> None:
    fill(page, SOURCE, "der Hund")
    show(page, "Grid")
    field = page.get_by_label("Sentence", exact=True)
    field.fill("Hund sieht . Katze")
    expect(page.get_by_text("1 of 3")).to_be_visible()
    field.press("End")
    field.press_sequentially(" hört")
    page.get_by_role("tab", name="Translate").click()
    settled(page)
    assert source_field(page).input_value() == "Hund sieht . Katze hört\nder Hund"


def test_a_sentence_beside_a_picture_is_replaced_whatever_was_asked_before(page: Page) -> None:
    fill(page, SOURCE, "der Hund")
    show(page, "Grid")
    field = page.get_by_label("Sentence", exact=True)
    held = Held(page, "**/v1/sentences")
    field.fill("Hund sieht . Katze")
    held.wait()
    field.fill("Hund sieht")  # nothing to ask about: it is answered first
    expect(page.get_by_text("1 of 2")).to_be_visible()
    page.wait_for_timeout(700)
    held.release()
    page.wait_for_timeout(300)
    field.press("End")
    field.press_sequentially(" . Katze")
    expect(page.get_by_text("1 of 3")).to_be_visible()
    page.get_by_role("button", name="Next sentence").click()
    page.get_by_role("button", name="Sentence before").click()
    field.press("End")
    field.press_sequentially(" hört")
    page.get_by_role("tab", name="Translate").click()
    settled(page)
    assert source_field(page).input_value() == "Hund sieht . hört Katze\nder Hund"


def test_the_focus_stays_where_it_is(page: Page) -> None:
    fill(page, SOURCE, "", "der Hund")
    first = page.get_by_label("Translation by grid").get_by_role("radio").first
    first.focus()
    page.keyboard.press("ArrowDown")
    assert is_focused(page, "each.type === 'radio' && each.checked && each.dataset.part === '1'")
    words(page, "grid").nth(1).focus()
    for line in ("1", "2", "1", "0"):
        page.keyboard.press("ArrowDown" if line == "2" or is_focused(page, "each.dataset.word === '1'") else "ArrowUp")
        assert is_focused(page, f"each.closest('[data-line]').dataset.line === '{line}'")

    show(page, "Grid")
    for name, key in (("Next sentence", "Enter"), ("Sentence before", "Enter")):
        button = page.get_by_role("button", name=name)
        button.focus()
        for _ in range(3):  # one more than the remaining sentences
            page.keyboard.press(key)
            expect(button).to_be_focused()
    settled(page)
    model = page.get_by_label("Model", exact=True)
    model.focus()
    model.select_option("transformer")
    settled(page)
    expect(model).to_be_focused()
    page.get_by_label("Your own translation").fill("the dog")
    text = page.get_by_label("Translation", exact=True)
    expect(text).to_be_visible()
    text.focus()
    text.select_option("own")
    expect(page.locator(".line")).to_have_count(3)
    expect(text).to_be_focused()
    show(page, "Search")
    finished = page.get_by_role("table").first.get_by_role("button").nth(1)
    finished.focus()
    page.keyboard.press("Enter")
    expect(finished).to_be_focused()


def test_what_could_not_be_copied_is_not_ticked(page: Page) -> None:
    fill(page, SOURCE)
    copy = page.get_by_label("Translation by grid").get_by_role("button", name="Copy")
    copy.click()
    expect(copy).to_have_text("✓ Copy")
    page.evaluate("navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false")
    expect(copy).to_have_text("Copy")
    copy.click()
    expect(copy).to_have_text("✗ Copy")
    expect(copy).to_be_focused()
    show(page, "Grid")
    page.get_by_role("button", name="Copy JSON").locator("visible=true").click()
    expect(page.get_by_role("button", name="✗ Copy JSON")).to_be_visible()
    expect(page.locator(".unseen[role=status]")).to_contain_text("Not done")


def test_what_was_just_typed_is_not_lost(page: Page) -> None:
    fill(page, SOURCE, "der Hund")
    show(page, "Grid")
    page.get_by_role("textbox", name="Sentence").fill("die Katze")
    page.get_by_role("button", name="Next sentence").click()
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value("der Hund")
    page.get_by_role("button", name="Sentence before").click()
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value("die Katze")


def test_texts_have_the_direction_of_their_script(page: Page) -> None:
    is_right = """(() => {
      const each = document.querySelector(".source .words > div");
      const range = document.createRange();
      range.selectNodeContents(each);
      const [text, box] = [range.getBoundingClientRect(), each.getBoundingClientRect()];
      return (text.left + text.right) / 2 > (box.left + box.right) / 2;
    })()"""
    source_field(page).fill("שלום")
    page.wait_for_function(is_right)  # the words are drawn again when they are translated
    assert source_field(page).evaluate("each => getComputedStyle(each).unicodeBidi") == "plaintext", (
        "as the words behind it"
    )
    source_field(page).fill("der Hund")
    page.wait_for_function(f"!{is_right}")
