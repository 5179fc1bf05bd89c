"""The page of the server, in a real browser: it shows the results of the Python API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from jointnmt import Translator
from jointnmt.analysis.inspection import inspect_pair
from jointnmt.serving.keys import Key, digest
from jointnmt.translator import TranslationOptions, compare, next_words, trace_search
from support.browser import open_page, package
from support.page import copied, settled, show, source_field, text_of, visited, words
from support.serving import live, services, wait_until, write_model

SOURCE, OTHER = "der Hund sieht die Katze .", "die Katze hört nicht"
OWN = "the dog sees the cat ."


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    layers = {"family": "transformer", "encoder_layers": 2, "decoder_layers": 2}
    return {
        "grid": write_model(folder / "grid", seed=2, model={"num_layers": 2, "shortcuts": {}}),
        "transformer": write_model(folder / "transformer", seed=2, model=layers),
    }


@pytest.fixture(scope="module")
def translators(runs: dict[str, Path]) -> dict[str, Translator]:
    return {name: Translator.load(run, "cpu") for name, run in runs.items()}


@pytest.fixture(scope="module")
def address(runs: dict[str, Path]) -> Iterator[str]:
    with live(services(runs)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with two sentences in it; its script must not fail."""
    with visited(browser, address) as found:
        field = source_field(found)
        field.fill(f"{SOURCE}\n{OTHER}")
        expect(words(found, "transformer", 1).first).to_be_visible()
        expect(words(found, "grid", 1).first).to_be_visible()
        field.press("Control+Home")  # the line with the caret is inspected
        yield found


def click_cell(page: Page, s: int, t: int) -> None:
    size = float(page.locator(".frame").evaluate("each => parseFloat(each.style.getPropertyValue('--cell'))"))
    page.locator(".grid-cells").click(position={"x": (s + 0.5) * size, "y": (t + 0.5) * size})


def test_translations_and_alternatives_are_the_translators(page: Page, translators: dict[str, Translator]) -> None:
    for name, translator in translators.items():
        found = translator.translate_stream([SOURCE, OTHER], TranslationOptions(num_best=3))
        for line, own in enumerate(found):
            assert text_of(page, name, line) == own.text
            if line == 0:
                listed = page.get_by_label(f"Translation by {name}").locator(".candidate span[lang]").all_inner_texts()
                assert listed == [each.text or "(empty)" for each in own.candidates]
    second = page.get_by_label("Translation by grid").locator(".candidate").nth(1)
    second.locator("input").check()
    assert text_of(page, "grid") == second.locator("span[lang]").inner_text()
    page.get_by_role("checkbox", name="transformer").uncheck()
    expect(page.get_by_label("Translation by transformer")).to_have_count(0)


def test_sentences_that_share_a_line_are_translated_by_themselves(
    page: Page, translators: dict[str, Translator]
) -> None:
    sentences = ["Hund sieht die Katze .", "Katze hört Hund nicht .", OTHER]
    text = f"  {sentences[0]}  {sentences[1]} \n\n{OTHER}"
    field = source_field(page)
    field.fill(text)
    lines = page.get_by_label("Translation by grid").locator("[data-line]")
    expect(lines).to_have_count(4)
    settled(page)
    expected = [translators["grid"].translate(sentence) for sentence in (*sentences[:2], "", OTHER)]
    assert [text_of(page, "grid", line) for line in (0, 1, 3)] == [expected[0], expected[1], expected[3]]
    assert field.input_value() == text
    paragraphs = page.locator(".source .words > div").all_text_contents()
    assert paragraphs == [text.split("\n")[0], "\u200b", OTHER]

    page.get_by_label("Translation by grid").get_by_role("button", name="Copy").click()
    page.wait_for_function("window.copied !== undefined")
    assert page.evaluate("window.copied") == f"{expected[0]} {expected[1]}\n\n{expected[3]}"

    field.focus()
    field.evaluate("(each, place) => each.setSelectionRange(place, place)", text.index(sentences[1]) + 1)
    expect(lines.nth(1)).to_have_class("current")
    point_at(page, text.index(sentences[1]))
    expect(words(page, "grid", 1).locator("visible=true").and_(page.locator("[data-weight]")).first).to_be_visible()
    show(page, "Grid")
    expect(page.get_by_text("2 of 4")).to_be_visible()
    assert page.get_by_label("Sentence", exact=True).input_value() == sentences[1]


def test_what_is_typed_after_a_sentence_leaves_it_as_it_is(page: Page) -> None:
    asked: list[list[str]] = []
    page.on("request", lambda each: "stream" in each.url and asked.append(json.loads(each.post_data or "")["texts"]))
    field = source_field(page)
    field.press("Control+End")
    for typed in (" .", " Hund", " sieht ."):
        field.press_sequentially(typed)
        page.wait_for_timeout(600)
        settled(page)
    by_grid = asked[::2]
    assert by_grid == [[f"{OTHER} ."], ["Hund"], ["Hund sieht ."]], "no sentence is asked for again"
    expect(page.get_by_label("Translation by grid").locator("[data-line='2']")).to_have_class("current")


def test_a_word_under_the_pointer_shows_its_alignment(page: Page, translators: dict[str, Translator]) -> None:
    options = TranslationOptions(alignments=True)
    [own] = translators["transformer"].translate_stream([SOURCE], options)
    alignment = own.candidates[0].alignment
    assert alignment is not None
    for place in range(2):
        words(page, "transformer").nth(place).hover()
        marked = page.locator(".source [data-weight]").evaluate_all(
            "all => all.map(each => [Number(each.dataset.word), Number(each.dataset.weight)])"
        )
        weights = enumerate(alignment[place].tolist()[: len(SOURCE.split())])
        assert dict(marked) == pytest.approx({word: weight for word, weight in weights if weight >= 0.04}, abs=0.006)
    column = int(np.argmax(np.asarray(alignment)[:, 0]))
    point_at(page, 0)
    expect(words(page, "transformer").nth(column)).to_have_attribute("data-weight", f"{alignment[column][0]:.2f}")


def test_marks_are_behind_their_words_where_a_line_just_fits(page: Page) -> None:
    """In sheets of many widths, the browser finds the word of a mark in the field at both ends of the mark."""
    page.set_viewport_size({"width": 1440, "height": 1600})
    source_field(page).fill("der Hund sieht die Katze und der Mann hört die Frau nicht und die Katze sieht den Hund")
    settled(page)
    words(page, "transformer").first.hover()
    expect(page.locator(".source [data-weight]").first).to_be_visible()
    pieces, apart = page.evaluate(
        """async () => {
            const [sheet, field] = [".sheet.source", "textarea"].map((each) => document.querySelector(each));
            const found = [...field.value.matchAll(/\\S+/g)];
            const beginnings = found.slice(3).map((last) => field.value.slice(0, last.index + last[0].length));
            const plain = document.querySelector(".words").appendChild(document.createElement("div"));
            plain.style = "width: max-content; white-space: pre";
            const widths = ["Kat", ...beginnings].map((text) => {
                plain.textContent = text;
                return plain.getBoundingClientRect().width + 2; // with the borders of the sheet
            });
            plain.remove();
            const [pieces, apart] = [[], []];
            sheet.style = "position: relative; z-index: 1"; // over the column beside it
            for (const width of widths) {
                sheet.style.width = `${width}px`;
                for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
                const marks = [...sheet.querySelectorAll("[data-weight]")].flatMap((each) =>
                    [...each.getClientRects()].map((box) => ({ box, word: found[each.dataset.word] })));
                pieces.push(marks.length);
                for (const { box, word } of marks)
                    for (const x of [box.left + 1, box.right - 1]) {
                        const at = document.caretPositionFromPoint(x, (box.top + box.bottom) / 2);
                        const place = at?.offsetNode === field ? at.offset - word.index : -1;
                        if (place < 0 || place > word[0].length) apart.push([width, word[0], word.index, at?.offset]);
                    }
            }
            return [pieces, apart];
        }"""
    )
    assert apart == []
    assert pieces[0] > pieces[-1] > 0, "in the narrowest sheet, words are broken"


def point_at(page: Page, place: int) -> None:
    """Move the pointer to a letter of the first paragraph of the source text."""
    middle = """(each, place) => {
        const range = document.createRange();
        range.setStart(each.firstChild, place);
        range.setEnd(each.firstChild, place + 1);
        const { left, top, width, height } = range.getBoundingClientRect();
        return [left + width / 2, top + height / 2];
    }"""
    page.mouse.move(*page.locator(".source .words > div").first.evaluate(middle, place))


def test_a_word_is_changed_and_the_rest_translated_anew(page: Page, translators: dict[str, Translator]) -> None:
    before = text_of(page, "grid")
    prefix = before.split()[0]
    offered = [each for each in next_words(translators["grid"], SOURCE, prefix, 8).words if each.word]
    words(page, "grid").nth(1).click()
    options = page.locator(".popover [role=option]")
    expect(options.first).to_be_visible()
    assert options.locator("b").all_inner_texts() == [each.word for each in offered]
    chosen = next(each for each in offered if not before.startswith(each.prefix))
    options.nth(offered.index(chosen)).click()
    expect(page.get_by_text(f"Begins with “{chosen.prefix}”")).to_be_visible()
    settled(page)
    assert text_of(page, "grid") == best(translators["grid"], chosen.prefix)
    assert words(page, "grid").nth(1).evaluate("each => each.classList.contains('fixed')")

    words(page, "grid").nth(0).click()
    page.get_by_role("combobox", name="Another word").fill("not")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Begins with “not”")).to_be_visible()
    settled(page)
    assert text_of(page, "grid") == best(translators["grid"], "not")
    page.get_by_role("button", name="Undo the change").click()
    expect(page.get_by_text(f"Begins with “{chosen.prefix}”")).to_be_visible()
    page.get_by_role("button", name="Translate freely").click()
    expect(page.get_by_text("Begins with")).to_have_count(0)
    settled(page)
    assert text_of(page, "grid") == before


def best(translator: Translator, prefix: str) -> str:
    found = next_words(translator, SOURCE, prefix, 5).words
    return max((each.candidate for each in found), key=lambda candidate: candidate.score).text


def test_the_keyboard_is_enough(page: Page, address: str, translators: dict[str, Translator]) -> None:
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("tab", name="Translate")).to_be_visible()
    for _ in range(20):
        if page.evaluate("document.activeElement.tagName") == "TEXTAREA":
            break
        page.keyboard.press("Tab")
    page.keyboard.type(SOURCE)
    page.keyboard.press("Control+Enter")
    expect(words(page, "grid").first).to_be_visible()
    expect(words(page, "transformer").first).to_be_visible()
    before = text_of(page, "grid")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.dataset.word") is None:
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".popover [role=option]").first).to_be_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.word") == "1", "the place is kept"
    page.keyboard.press("Enter")
    expect(page.locator(".popover [role=option]").nth(1)).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    word = page.locator("[role=option][aria-selected=true] b").inner_text()
    page.keyboard.press("Enter")
    prefix = f"{before.split()[0]} {word}"
    expect(page.get_by_text(f"Begins with “{prefix}”")).to_be_visible()
    settled(page)
    assert text_of(page, "grid") == best(translators["grid"], prefix)
    expect(page.locator("[role=status]").last).to_contain_text("Translated again")

    page.get_by_role("tab", name="Translate").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Grid")).to_be_focused()
    settled(page)
    expect(page.locator(".grid-cells")).to_be_visible()
    page.locator(".stage").locator("visible=true").focus()
    for key in ("Home", *["ArrowUp"] * 20, "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator(".unseen[role=status]")).to_contain_text("Hund ×")
    cell = copied(page)["cell"]
    assert (cell["source_position"], cell["target_position"]) == (1, 1)


@pytest.mark.parametrize(
    ("model", "places"), [("grid", "source prenet target"), ("transformer", "cross encoder decoder")]
)
def test_a_cell_of_the_grid_has_the_numbers_of_the_model(
    page: Page, translators: dict[str, Translator], model: str, places: str
) -> None:
    own = inspect_pair(translators[model], SOURCE)
    page.get_by_role("tab", name="Grid").click()
    page.get_by_label("Model", exact=True).select_option(model)
    expect(page.locator(".grid-view:not(.pending) .grid-cells")).to_be_visible()
    page.wait_for_function(f"document.querySelector('.strip-name')?.textContent.startsWith('{places.split()[0]}')")
    click_cell(page, 2, 1)
    expected = own.cell(2, 1).plain()
    expect(page.locator(".details h2").first).to_have_text(f"{own.source_tokens[2]} × {own.target_predicted[1]}")
    found = copied(page)
    assert (found["source_tokens"], found["target_predicted"]) == (list(own.source_tokens), list(own.target_predicted))
    assert np.asarray(found["values"]) == pytest.approx(own.alignment, abs=1e-5)
    strips = {(each["place"], each["layer"]): each["heads"] for each in found["cell"]["attention"]}
    assert {place for place, _ in strips} == set(places.split())
    for (place, layer), heads in strips.items():
        assert np.asarray(heads) == pytest.approx(np.asarray(expected["attention"][place][layer - 1]), abs=2e-5)
    assert page.locator(".details dd").nth(3).inner_text() == f"{expected['alignment']:.3f}"
    place = "grid" if model == "grid" else "encoder"
    table = page.locator(".details tbody").first.locator("tr")
    assert [float(row.locator("td").first.inner_text()) for row in table.all()] == pytest.approx(
        expected["states"][place]["norm"], abs=0.006
    )


def test_cells_are_coloured_by_what_is_chosen_and_by_layer(page: Page, translators: dict[str, Translator]) -> None:
    own = inspect_pair(translators["grid"], SOURCE)
    show(page, "Grid")
    expect(page.locator(".grid-cells")).to_be_visible()
    choice = page.get_by_label("Colour", exact=True)
    colours = "each => [...each.getContext('2d').getImageData(0, 0, each.width, each.height).data].join()"
    measures = {
        "norm-grid": own.states["grid"].norm[1].T,
        "change-grid": own.states["grid"].change[1].T,
        "entropy-source": own.entropy["source"][1].mean(0).T,
        "gate-source-0": own.gates["source"][1, :, :, 0].T,
        "gate-target-1": own.gates["target"][1, :, :, 1].T,
        "norm-prenet": own.states["prenet"].norm[1],
    }
    for key, expected in measures.items():
        choice.select_option(key)
        page.get_by_role("slider").fill("1")
        found = copied(page)
        assert np.asarray(found["values"]) == pytest.approx(expected, rel=1e-4, abs=1e-4), key
        pictured = page.locator(".grid-cells").evaluate(colours)
        page.get_by_role("slider").fill("0")
        assert copied(page)["values"] != found["values"]
        assert (page.locator(".grid-cells").evaluate(colours) != pictured) == (key != "norm-prenet"), key


def test_the_search_is_shown_with_what_was_pruned(page: Page, translators: dict[str, Translator]) -> None:
    trace = trace_search(translators["grid"], SOURCE, most_pruned=5)
    show(page, "Search")
    expect(page.locator("[data-node]")).to_have_count(len(trace.plain()["nodes"]))
    found = copied(page)["search"]
    assert {**trace.plain(), "model": "grid"} == found
    pruned = next(node for node in found["nodes"] if node["fate"] == "pruned")
    page.locator(f"[data-node='{pruned['id']}']").click()
    expect(page.locator(".search-view .details")).to_contain_text(f"pruned, {pruned['behind']:.2f} behind")
    assert f"−{pruned['behind']:.2f}" in (page.locator(f"[data-node='{pruned['id']}']").text_content() or "")
    page.get_by_label("Order").select_option("tree")
    expect(page.locator("[data-node]")).to_have_count(len(found["nodes"]))

    page.get_by_label("Your own translation").fill(OWN)
    expect(page.locator("[data-own]")).to_have_count(7)
    [own] = translators["grid"].score_stream([SOURCE], [OWN], alternatives=5)
    assert copied(page)["own"] == own.plain()
    expect(page.locator("svg").get_by_text(f"Your own translation: score {own.score:.2f}")).to_be_visible()


def test_the_search_begins_as_the_translation_was_changed(page: Page, translators: dict[str, Translator]) -> None:
    show(page, "Search")
    free = copied(page)["search"]
    show(page, "Translate")
    words(page, "grid").nth(0).click()
    page.get_by_role("combobox", name="Another word").fill("not")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Begins with “not”")).to_be_visible()
    settled(page)
    show(page, "Search")
    expect(page.locator(".search-view").get_by_text("Begins with “not”")).to_be_visible()
    expected = trace_search(translators["grid"], SOURCE, "not", most_pruned=5).plain()
    assert copied(page)["search"] == {**expected, "model": "grid"} != free
    show(page, "Translate")
    page.get_by_role("button", name="Undo the change").click()
    settled(page)
    show(page, "Search")
    assert copied(page)["search"] == free


def test_two_models_are_compared(page: Page, translators: dict[str, Translator]) -> None:
    expected = compare(translators, SOURCE, []).plain()
    show(page, "Compare")
    expect(page.locator(".compare-view tbody tr")).to_have_count(len(expected["texts"]))
    assert copied(page) == expected
    for index, row in enumerate(page.locator(".compare-view tbody tr").all()):
        for place, name in enumerate(expected["models"]):
            assert f"{expected['scores'][name][index]['score']:.3f}" in row.locator("td").nth(2 + place).inner_text()
    left, right = (each["text"].split() for each in expected["texts"])
    assert set(page.locator("mark.left").all_inner_texts()) >= set(left) - set(right)
    assert page.locator("mark").count() > 0


def test_long_names_of_models_are_whole_on_a_phone(browser: Browser, runs: dict[str, Path]) -> None:
    names = ["a-name-as-long-as-models-have-them", "transformer-of-many-words"]
    with live(services({names[0]: runs["grid"], names[1]: runs["transformer"]})) as port:
        page = open_page(browser.new_context(viewport={"width": 390, "height": 844}))
        page.goto(f"http://127.0.0.1:{port}/")
        source_field(page).fill(SOURCE)
        show(page, "Compare")
        keys = page.locator(".compare-view svg .key")
        expect(keys).to_have_text(names)

        def boxes() -> list[Any]:  # none while the figure is drawn again
            return [keys.nth(number).bounding_box() for number in range(2)]

        wait_until(lambda: all(boxes()))
        first, second = boxes()
    assert first["y"] + first["height"] <= second["y"], "one below the other"
    assert max(each["x"] + each["width"] for each in (first, second)) < 378, "and none outside of the stage"
    page.context.close()


def test_what_is_said_of_a_model_is_not_cut_on_a_phone(browser: Browser, runs: dict[str, Path]) -> None:
    name = "transformer-of-many-words"
    with live(services({name: runs["transformer"]})) as port:
        page = open_page(browser.new_context())
        page.goto(f"http://127.0.0.1:{port}/")
        hint = page.get_by_label(f"Translation by {name}").locator("header .hint")
        for width, expected in ((1440, ["seen", "seen"]), (390, ["seen", "unseen"])):
            page.set_viewport_size({"width": width, "height": 844})
            size_and_family = hint.evaluate(
                """(hint) => [hint.firstChild, hint.lastChild].map((part) => {
                    const range = document.createRange();
                    range.selectNode(part);
                    const [box, edge] = [range.getBoundingClientRect(), hint.getBoundingClientRect()];
                    return box.top >= edge.bottom - 1 ? "unseen" : box.right <= edge.right + 1 ? "seen" : "cut";
                })"""
            )
            assert size_and_family == expected
    page.context.close()


def test_of_a_long_translation_the_grid_shows_the_beginning(browser: Browser, runs: dict[str, Path]) -> None:
    with live(services({"grid": runs["grid"]}, limits={"attention_tokens": 8})) as port:
        page = open_page(browser.new_context())
        page.goto(f"http://127.0.0.1:{port}/#grid")
        page.get_by_label("Sentence", exact=True).fill(SOURCE)
        page.get_by_label("Your own translation").fill("the " * 20)
        page.get_by_label("Translation", exact=True).select_option("own")
        expect(page.locator(".line")).to_have_count(8)
        expect(page.locator(".grid-view")).to_contain_text("The first 8 of the translation's 21 tokens are shown.")
    page.context.close()


def test_nothing_is_cut_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for view in ("Translate", "Grid", "Search", "Compare"):
        show(page, view)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390, view
    show(page, "Grid")
    click_cell(page, 0, 0)
    expect(page.locator(".details h2").first).to_contain_text("der ×")
    show(page, "Translate")
    words(page, "grid").nth(1).click()
    box = page.locator(".popover").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_inaccessible(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("html")).to_have_attribute("data-theme", scheme)
    page.evaluate(package("axe-core/axe.min.js").read_text(encoding="utf-8"))
    for view in ("Translate", "Grid", "Search", "Compare"):
        show(page, view)
        if view == "Translate":
            words(page, "grid").nth(1).click()
            expect(page.locator(".popover [role=option]").first).to_be_visible()
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems = [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in found["violations"]]
        assert problems == [], view
        page.keyboard.press("Escape")


def test_what_the_server_refuses_is_said(browser: Browser, runs: dict[str, Path]) -> None:
    key = Key(name="reader", sha256=digest("secret"))
    with live(services({"grid": runs["grid"]}, keys=(key,), limits={"line_characters": 100})) as port:
        page = open_page(browser.new_context())
        page.on("dialog", lambda dialog: dialog.accept("secret"))
        page.goto(f"http://127.0.0.1:{port}/")
        field = source_field(page)
        field.fill("der " * 60)
        expect(page.get_by_role("alert").first).to_contain_text("100")
        field.fill(SOURCE)
        expect(words(page, "grid").first).to_be_visible()
    field.fill(OTHER)
    expect(page.get_by_role("alert").first).to_contain_text("cannot be reached")
    page.context.close()
