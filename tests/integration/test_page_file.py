"""The page of `jointnmt explore`: one file that needs neither a server nor a network."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, expect
from typer.testing import CliRunner

from jointnmt import Translator
from jointnmt.analysis.inspection import inspect_pair
from jointnmt.cli.main import app
from jointnmt.serving.page import write_page
from support.browser import open_page, watched
from support.serving import write_model

SOURCE, OWN = "der Hund sieht die Katze .", "the dog sees"
SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]
MOVE = """async (steps) => {
  const target = document.querySelector("[role=application]");
  for (let step = 0; step < steps; step++) {
    const key = ["ArrowRight", "ArrowDown", "PageUp", "ArrowLeft"][step % 4];
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise(requestAnimationFrame);
  }
}"""
NEXT = """async (sentences) => {
  for (let sentence = 0; sentence < sentences; sentence++) {
    document.querySelector("[aria-label='Next sentence']").click();
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
  }
}"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    layers = {"family": "transformer", "encoder_layers": 2, "decoder_layers": 2}
    return [
        write_model(folder / "grid", seed=2, model={"num_layers": 2}),
        write_model(folder / "other", seed=2, model=layers),
    ]


def explored(runs: list[Path], out: Path, *options: str) -> Path:
    result = CliRunner().invoke(
        app, ["explore", *map(str, runs), "--device", "cpu", "--precision", "float32", "--out", str(out), *options]
    )
    assert result.exit_code == 0, result.stderr
    return out


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page without a network: it may request only its file."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True, accept_downloads=True)
    found = open_page(context)
    asked: list[str] = []
    found.on("request", lambda request: asked.append(request.url))
    problems = watched(found)
    yield found
    context.close()
    assert problems == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_file_shows_all_views_without_a_network(page: Page, runs: list[Path], tmp_path: Path) -> None:
    file = explored(
        runs,
        tmp_path / "new" / "page.html",
        "--text",
        SOURCE,
        "--text",
        "die Katze",
        "--translation",
        OWN,
        "--translation",
        "the cat",
    )
    page.goto(file.as_uri())
    translator = Translator.load(runs[0], "cpu")
    target = page.get_by_label("Translation by grid").locator("ol > li").first
    expect(target.locator("[data-word]").first).to_be_visible()
    shown = " ".join(target.locator("[data-word]").all_inner_texts())
    assert shown == translator.translate([SOURCE])[0]
    target.locator("[data-word]").first.hover()
    assert page.locator(".source [data-weight]").count() > 0
    target.locator("[data-word]").first.click()
    expect(page.get_by_role("status").filter(has_text="the model is needed")).to_be_attached()
    expect(page.locator(".popover")).to_have_count(0)

    page.get_by_role("tab", name="Grid").click()
    size = float(page.locator(".frame").evaluate("each => parseFloat(each.style.getPropertyValue('--cell'))"))
    page.locator(".grid-cells").click(position={"x": 1.5 * size, "y": 1.5 * size})
    own = inspect_pair(translator, SOURCE)
    expect(page.locator(".details dd").nth(3)).to_have_text(f"{own.alignment[1, 1]:.3f}")
    page.get_by_label("Translation", exact=True).select_option("own")
    expect(page.locator(".line").last).to_contain_text("</s>")
    expect(page.locator(".line")).to_have_count(4)
    page.get_by_role("tab", name="Translate").click()
    page.get_by_label("Translation by grid").get_by_role("radio").nth(1).check()
    page.get_by_role("tab", name="Grid").click()
    page.get_by_label("Translation", exact=True).select_option("model")
    expect(page.get_by_text("This file does not hold the grid of that translation.")).to_be_visible()
    page.get_by_role("tab", name="Search").click()
    expect(page.locator("[data-own]")).to_have_count(4)
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator(".compare-view tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Next sentence").click()
    expect(page.locator(".compare-view tbody")).to_contain_text("the cat")


def test_sentences_of_a_file_are_told_apart_by_their_place(page: Page, runs: list[Path], tmp_path: Path) -> None:
    texts = [(SOURCE, OWN), (SOURCE, "the cat"), ("der Hund und die Katze", "the")]
    options = [option for text, own in texts for option in ("--text", text, "--translation", own)]
    page.goto(explored(runs[:1], tmp_path / "page.html", *options).as_uri())
    expect(page.get_by_label("Translation by grid").locator("ol > li [data-word='0']")).to_have_count(3)
    page.get_by_role("tab", name="Grid").click()
    page.get_by_label("Translation", exact=True).select_option("own")
    for number, (_, own) in enumerate(texts):
        if number:
            page.get_by_role("button", name="Next sentence").click()
        expect(page.locator(".line > span:last-child")).to_have_text([*own.split(), "</s>"])


def test_the_picture_of_tokens_has_their_colours(page: Page, runs: list[Path], tmp_path: Path) -> None:
    page.goto(explored(runs[1:], tmp_path / "page.html", "--text", SOURCE).as_uri())
    page.get_by_role("tab", name="Grid").click()
    for key, number in (("norm-encoder", 7), ("norm-decoder", page.locator(".line").count())):
        page.get_by_label("Colour", exact=True).select_option(key)
        with page.expect_download() as waiting:
            page.get_by_role("button", name="SVG").locator("visible=true").click()
        [width, height] = ["height", "width"] if key == "norm-encoder" else ["width", "height"]
        picture = ElementTree.parse(waiting.value.path())
        squares = [each for each in picture.iter(f"{SVG}rect") if each.get(width) == "11" and each.get(height) != "11"]
        assert len(squares) == number
        assert len({each.get("fill") for each in squares}) > 1
        shown = page.locator(".legend > span:first-child").all_inner_texts()
        written = [(each.text or "").partition("   ")[0] for each in picture.iter(f"{SVG}text")]
        assert len(shown) == 2 and [text for text in written if text in shown[1]] == [shown[1]]
        assert written.count(shown[0]) == 2, "the title of the picture and of its legend"


@pytest.mark.parametrize(("view", "kind"), [("Grid", "SVG"), ("Grid", "PNG"), ("Search", "SVG"), ("Compare", "PNG")])
def test_pictures_are_saved(page: Page, runs: list[Path], tmp_path: Path, view: str, kind: str) -> None:
    page.goto(explored(runs, tmp_path / "page.html", "--text", SOURCE).as_uri())
    page.get_by_role("tab", name=view).click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name=kind).locator("visible=true").click()
    content = Path(waiting.value.path()).read_bytes()
    assert waiting.value.suggested_filename.endswith(f".{kind.lower()}")
    if kind == "PNG":
        assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) > 3000
        return
    picture = tmp_path / "picture.svg"
    picture.write_bytes(content)
    page.goto(picture.as_uri())
    assert page.evaluate("document.documentElement.tagName") == "svg", "it stands by itself"
    texts = page.locator("text").all_text_contents()
    predicted = Translator.load(runs[0], "cpu").translate([SOURCE])[0].split()[0]
    assert {"Hund", predicted} <= set(texts) if view == "Grid" else predicted in texts


def test_texts_cannot_break_out_of_their_place(page: Page, runs: list[Path], tmp_path: Path) -> None:
    document = json.loads(explored(runs[:1], tmp_path / "page.json", "--text", SOURCE).read_text(encoding="utf-8"))
    evil = "</script><script>window.broken = 1</script><!-- <img src=x onerror='window.broken = 1'> \u2028"
    sentence = document["sentences"][0]
    sentence["source"] = sentence["comparison"]["source"] = evil
    sentence["by_model"]["grid"]["translation"]["candidates"][0]["text"] = evil
    write_page(document, tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.get_by_label("Translation by grid")).to_contain_text("</script>")
    assert page.evaluate("window.broken") is None


def test_a_text_is_an_alternative_once(page: Page, runs: list[Path], tmp_path: Path) -> None:
    document = json.loads(explored(runs[:1], tmp_path / "page.json", "--text", SOURCE).read_text(encoding="utf-8"))
    best, second, third, *_ = document["sentences"][0]["by_model"]["grid"]["translation"]["candidates"]
    best["text"], second["text"], third["text"] = "the dog", "the dog", "the cat"  # as if of other pieces
    write_page(document, tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator(".candidate").filter(has_text="the dog")).to_have_count(1)
    page.locator(".candidate").filter(has_text="the cat").click()
    expect(page.get_by_label("Translation by grid").locator("ol")).to_have_text("the cat")


def test_a_document_of_another_format_is_not_read(page: Page, runs: list[Path], tmp_path: Path) -> None:
    document = json.loads(explored(runs[:1], tmp_path / "page.json", "--text", SOURCE).read_text(encoding="utf-8"))
    write_page({**document, "format": 2}, tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.get_by_role("alert")).to_contain_text("format 2")


def test_numbers_that_json_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_page({"value": float("nan")}, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def long_document(runs: list[Path], folder: Path) -> dict[str, Any]:
    """60 sentences of 60 tokens: one sentence under 60 names, without the parts that a file of so many leaves out."""
    words = SOURCE.split()
    text, target = (" ".join((each * 60)[:59]) for each in (words, OWN.split()))
    file = explored(runs, folder / "long.json", "--text", text, "--translation", target)
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    [first] = document["sentences"]
    for model in first["by_model"].values():
        model["inspection"], model["target_inspection"] = model["target_inspection"], None
        if model["inspection"]["grid_heads"]:
            model["inspection"]["attention"].update(source=None, target=None)
            model["inspection"]["grid_heads"] = None
    document["sentences"] = [copy.deepcopy(first) for _ in range(60)]
    for number, sentence in enumerate(document["sentences"]):
        sentence["source"] = f"{number} {text}"
    return document


def test_60_sentences_of_60_tokens_do_not_stutter(page: Page, runs: list[Path], tmp_path: Path) -> None:
    write_page(long_document(runs, tmp_path), tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri() + "#grid")
    expect(page.locator(".line")).to_have_count(60)
    key, sentence = milliseconds(page, MOVE, 40), milliseconds(page, NEXT, 59)
    print(f"a key: {key:.0f} ms; a sentence: {sentence:.0f} ms")
    # What people perceive as immediate; drawing all 60 sentences again would take seconds on any machine.
    assert key < 100
    assert sentence < 300


def milliseconds(page: Page, script: str, steps: int) -> float:
    """Processor time of the page's main thread for each step of a script, without other work on the machine."""
    inspector = page.context.new_cdp_session(page)
    inspector.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        found = {each["name"]: each["value"] for each in inspector.send("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"])

    before = seconds()
    page.evaluate(script, steps)
    after = seconds()
    assert after > before
    return 1000 * (after - before) / steps


def pictured_models(runs: list[Path]) -> list[str]:
    """The models that the documentation shows: those of JOINTNMT_PAGE_MODELS, else small random ones."""
    return os.environ["JOINTNMT_PAGE_MODELS"].split() if "JOINTNMT_PAGE_MODELS" in os.environ else list(map(str, runs))


def test_screenshots_for_the_documentation(page: Page, runs: list[Path], tmp_path: Path) -> None:
    """With JOINTNMT_PAGE_MODELS they are written to docs/figures, for the documentation."""
    trained = "JOINTNMT_PAGE_MODELS" in os.environ
    text = "Der Junge hat gestern einen kleinen Hund im Park gesehen." if trained else SOURCE
    out = ROOT / "docs" / "figures" if trained else tmp_path
    file = explored([Path(each) for each in pictured_models(runs)], tmp_path / "page.html", "--text", text)
    page.set_viewport_size({"width": 1180, "height": 760})
    for view in ("Translate", "Grid", "Search", "Compare"):
        page.goto(file.as_uri())
        page.get_by_role("tab", name=view).click()
        expect(page.locator(".pending")).to_have_count(0)
        if view == "Translate":
            page.get_by_label("Translation by").last.locator("[data-word]").nth(1).hover()
        picture = out / f"page-{view.lower()}.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 10_000
