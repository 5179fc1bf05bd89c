"""`jointnmt report`: the page and its text, measuring that resumes after an interruption, marked differences."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import jointnmt
from jointnmt.cli.main import app
from jointnmt.evaluation.p_values import stated
from jointnmt.evaluation.scores import METRICS, corpus_scores
from jointnmt.report.analyses import analyses
from jointnmt.report.curves import read_learning_curves
from jointnmt.report.samples import GAP, attention_lines, different_lines, sample, spread_lines
from jointnmt.runs import checkpoint
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.outputs import RunOutputs, run_outputs
from jointnmt.translator import Translator, given, searching
from jointnmt.translator.batching import plan_window
from support.page_checks import Page, browse, check_accessible, check_self_contained, download, run_browser
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, unbind, write_run

pytestmark = pytest.mark.slow

TRICKY = 'der <script>alert("x")</script> Hund & die Katze'
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def no_progress(what: str, done: int, total: int) -> None: ...


def write_log(run: Path) -> None:
    records: list[dict[str, Any]] = []
    for step in (50, 100):
        records.append({"event": "train", "step": step, "epoch": step // 60, "perplexity": 900.0 / step, "seconds": 90})
        records.append(
            {"event": "validation", "step": step, "perplexity": 500.0 / step, "seconds": 90, "bleu": step / 10}
        )
    records.append({"event": "validation", "step": 150, "perplexity": 6.0, "seconds": 0, "best": False})
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    (run / "log.jsonl").write_text(text + '{"event": "train", "st', encoding="utf-8")


def write_folder(folder: Path, shortest: int = 2) -> None:
    """Two runs, `first` and `a<b`, with the training text of only the first, and texts to report on.

    Their sentences have `shortest` to 8 words.
    """
    sources = [TRICKY, "", *(" ".join(SOURCE_WORDS[:n]) for n in range(shortest, 9))]
    references = ["the dog", "", *(" ".join(TARGET_WORDS[:n]) for n in range(shortest, 9))]
    for name, lines in (("test.de", sources), ("test.en", references), ("de", sources[2:]), ("en", references[2:])):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    data: dict[str, Any] = {"source_language": "de", "target_language": "en"}
    data |= {"train": [{"source": "de", "target": "en"}], "cache": str(folder / "cache")}
    write_log(write_run(folder / "first", data={**data, "root": str(folder)}))
    write_run(folder / "a<b", data={**data, "root": str(folder / "gone")}, model={"num_layers": 2})


def report(folder: Path, *runs: str, **texts: str) -> Result:
    files = {"source": "test.de", "reference": "test.en", "out": "pages/report.html", **texts}
    options = [part for name, file in files.items() for part in (f"--{name}", str(folder / file))]
    return CliRunner().invoke(app, ["report", *(str(folder / run) for run in runs), *options, "--device", "cpu"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report, for tests that read it."""
    folder = tmp_path_factory.mktemp("reported")
    write_folder(folder, shortest=1)
    result = report(folder, "first", "a<b")
    assert result.exit_code == 0, result.output
    return folder


def read_page(folder: Path) -> Page:
    return Page((folder / "pages/report.html").read_text(encoding="utf-8"))


@pytest.fixture
def page(reported: Path) -> Page:
    return read_page(reported)


def test_the_page_is_self_contained_and_accessible(page: Page) -> None:
    check_self_contained(page)
    check_accessible(page)
    # Learning curves of one run (2), four analyses with frequencies (5), attention of 2 lines and systems (4 each).
    assert len(page.all("img")) == 2 + 5 + 2 * 2 * 4


def test_what_texts_and_names_hold_is_shown_and_not_obeyed(page: Page) -> None:
    assert TRICKY in page.text("dd")
    assert "Translation report: first, a<b" in page.text("h1")
    assert not page.all("script")


def test_the_page_shows_what_evaluation_finds(page: Page, reported: Path) -> None:
    numbers = json.loads(download(page, "report.json"))
    references = (reported / "test.en").read_text().splitlines()
    sources = (reported / "test.de").read_text().splitlines()
    translator = Translator.load(reported / "a<b", "cpu")
    scores = corpus_scores(translator.translate(sources), references, "en")
    second = numbers["systems"][1]
    assert second["name"] == "a<b"
    assert second["scores"] == json.loads(json.dumps(scores.plain()))
    assert f"{scores.bleu.value:.2f}" in page.text("td")
    assert scores.bleu.signature in page.text("code")
    assert [each["metric"] for each in numbers["comparisons"]] == [*METRICS, "nll"]
    p_value = numbers["comparisons"][1]["systems"][1]["p_value"]
    assert any(text.startswith(stated(p_value)) for text in page.text("small"))
    assert f"{second['parameters']['total']:,}" in page.text("td")
    rows = list(csv.reader(io.StringIO(download(page, "bleu-by-length-of-the-source.csv"))))
    assert [row[0] for row in rows[1:]] == ["first"] * 5 + ["a<b"] * 5


def test_the_page_begins_with_what_differs_and_says_when_and_by_what_it_was_made(
    page: Page, reported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page.text("p")[0]
    assert first.startswith("a<b and first: fewer than 10 sentences") or "significant" in first
    (made,) = page.text("time")
    text = (reported / "pages/report.html").read_text(encoding="utf-8")
    assert f'Made on <time datetime="{made}">{made}</time> by jointnmt {jointnmt.__version__}.' in text
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    report(reported, "first", "a<b", out="pages/dated.html")
    assert Page((reported / "pages/dated.html").read_text()).text("time") == ["1970-01-02"]


def test_titles_of_matrices_are_text_of_the_page(page: Page) -> None:
    """In a narrow picture they would be cut off."""
    assert page.text("strong").count("Alignment (reduction)") == 2 * 2
    assert len(page.all("figcaption")) == 2 * 2 * 4


def test_what_is_missing_is_said(page: Page) -> None:
    notes = page.text("strong")
    assert any(note.startswith("a<b: its training text was not found") for note in notes)
    assert any(note.startswith("a<b: there is no log of its training; it has no") for note in notes)
    assert not any(note.startswith("first: its") or "first: there is no log" in note for note in notes)
    numbers = json.loads(download(page, "report.json"))
    assert [[*each["systems"]] for each in numbers["analyses"][-2:]] == [["first", "a<b"], ["first"]]


def test_a_single_run_has_a_report_too(folder: Path) -> None:
    assert report(folder, "first").exit_code == 0
    page = read_page(folder)
    check_self_contained(page)
    check_accessible(page)
    assert not json.loads(download(page, "report.json"))["comparisons"]
    assert not page.all("mark")


def test_the_same_command_writes_the_same_page_and_measures_once(
    reported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "translate_stream", None)
    monkeypatch.setattr(Translator, "score_stream", None)
    result = report(reported, "first", "a<b", out="pages/again.html")
    assert result.exit_code == 0, result.output
    assert (reported / "pages/again.html").read_bytes() == (reported / "pages/report.html").read_bytes()


def read_texts(folder: Path) -> EvalSet:
    sources, references = ((folder / name).read_text().splitlines() for name in ("test.de", "test.en"))
    return EvalSet(sources, references, "test.de", "test.en")


@pytest.mark.parametrize(("what", "module"), [("translating", searching), ("predicting", given)])
def test_measuring_goes_on_after_an_interruption(
    folder: Path, what: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in the third window, of four sentences: it is computed again, with the same batches afterwards."""
    monkeypatch.setattr("jointnmt.translator.batching.FIRST_WINDOW", 1)
    monkeypatch.setattr("jointnmt.testset.outputs.WINDOW", 4)
    plan, planned = plan_window, list[Sequence[int]]()
    monkeypatch.setattr(module, "plan_window", lambda sources, *more: planned.append(sources) or plan(sources, *more))
    translator, eval_set = Translator.load(folder / "first", "cpu"), read_texts(folder)

    def interrupt(doing: str, done: int, total: int) -> None:
        if what in doing and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_outputs(translator, folder / "first", eval_set, interrupt)
    told: list[tuple[str, int]] = []
    found = run_outputs(translator, folder / "first", eval_set, lambda doing, done, total: told.append((doing, done)))
    assert [done for doing, done in told if what in doing] == [
        5,
        6,
        7,
        8,
        9,
    ]  # at its start, so that the first one is timed
    resumed = planned[3:]
    told.clear()
    assert found == run_outputs(
        translator, folder / "first", eval_set, lambda doing, done, total: told.append((doing, done))
    )
    assert not told
    shutil.rmtree(folder / "cache/measured")
    planned.clear()
    assert found == run_outputs(translator, folder / "first", eval_set, no_progress)
    assert resumed == planned[2:]


def test_other_texts_weights_or_searches_are_measured_anew(folder: Path) -> None:
    run, eval_set = folder / "first", read_texts(folder)
    unbind(run)  # otherwise another search would be refused
    run_outputs(Translator.load(run, "cpu"), run, eval_set, no_progress)
    fewer = EvalSet(eval_set.sources[:5], eval_set.references[:5], "test.de", "test.en")
    assert len(run_outputs(Translator.load(run, "cpu"), run, fewer, no_progress).translations) == 5
    settings = run / "experiment.yaml"
    settings.write_text(settings.read_text().replace("beam_size: 3", "beam_size: 2"))
    run_outputs(Translator.load(run, "cpu"), run, eval_set, no_progress)
    weights, values = checkpoint.read(run / "model.safetensors")
    checkpoint.write(run / "model.safetensors", {name: -tensor for name, tensor in weights.items()}, values)
    run_outputs(Translator.load(run, "cpu"), run, eval_set, no_progress)
    assert len([*(folder / "cache/measured").glob("*.jsonl")]) == 2 + 2 + 1 + 2  # another search: only translations


def test_perplexity_and_cut_translations_are_those_of_the_translator(folder: Path) -> None:
    translator, eval_set = Translator.load(folder / "first", "cpu"), read_texts(folder)
    found = run_outputs(translator, folder / "first", eval_set, no_progress)
    scores = translator.score(eval_set.sources, eval_set.references)
    tokens = [value for score in scores for value in score.token_log_probabilities]
    assert found.perplexity == pytest.approx(pow(2.718281828459045, -sum(tokens) / len(tokens)))
    translations = [each.candidates for each in translator.translate_stream(eval_set.sources)]
    assert found.cut == sum(not each[0].complete for each in translations if each)
    assert [len(row) for row in found.target_ids] == [len(row) for row in found.hits]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"reference": "en"}, 3, "are not parallel: 9 and 7 lines"),
        ({"source": "empty", "reference": "empty"}, 3, "no sentences"),
        ({"reference": "shifted"}, 3, "test.de:2: an empty line cannot have a target"),
        ({"out": "rep"}, 2, "Give it a name that ends in .html"),
        ({"twice": "first"}, 2, "same name"),
        ({"twice": "other"}, 2, "have different languages: de-en, de-fr"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, change: dict[str, str], code: int, message: str) -> None:
    (folder / "empty").write_text("")
    (folder / "shifted").write_text("the\n" * 9)
    data = {"source_language": "de", "target_language": "fr", "train": [{"source": "de", "target": "en"}]}
    other = write_run(folder / "other", data=data)
    unbind(other)
    settings = other / "segmentation" / "segmentation.json"
    settings.write_text(settings.read_text().replace('"en"', '"fr"'))
    runs = ["first", *([change.pop("twice")] if "twice" in change else [])]
    result = report(folder, *runs, **change)
    assert (result.exit_code, message in " ".join(result.stderr.split())) == (code, True), result.stderr
    assert not (folder / "pages/report.html").exists()


def test_learning_is_read_off_the_log(folder: Path) -> None:
    learning = read_learning_curves(folder / "first", "first")
    assert learning.training == [(50, 18.0), (100, 9.0)]
    assert learning.validation == [(50, 10.0), (100, 5.0), (150, 6.0)]
    assert learning.bleu == [(50, 5.0), (100, 10.0)]
    assert (learning.updates, learning.epochs, learning.best) == (150, 2, (100, 5.0))
    assert learning.hours == pytest.approx(0.1)


def outputs_of(name: str, *translations: str, language: str = "en", lowercase: bool = False) -> RunOutputs:
    return RunOutputs(name, ("de", language), lowercase, translations, 0, (), (), ())


def marked(text: str, reference: str, first: str, language: str = "en") -> str:
    """The translation with `{}` around parts that the reference lacks, `()` around those that the first one lacks."""
    eval_set = EvalSet(["x"], [reference], "source", "reference")
    found = sample(
        [outputs_of("first", first, language=language), outputs_of("second", text, language=language)], eval_set, 0
    )
    pieces = []
    for span in found.renderings[1].spans:
        piece = f"{{{span.text}}}" if span.missing else span.text
        pieces.append(f"({piece})" if span.different else piece)
    return "".join(pieces)


@pytest.mark.parametrize(
    ("text", "reference", "first", "expected"),
    [
        ("A dog runs.", "A dog runs.", "A dog runs.", "A dog runs."),
        ("A big dog runs.", "A dog runs.", "A dog runs.", "A ({big}) dog runs."),
        ("The cat runs.", "A dog runs.", "The cat sits.", "{The cat} (runs)."),
        ("A dog.", "A dog runs.", "A dog runs.", f"A dog({{{GAP}}})."),
        ("A dog", "A dog runs", "A dog", f"A dog{{{GAP}}}"),
        ("", "A dog", "A dog", f"({{{GAP}}})"),
        ("a  b", "a b", "a  b", "a  b"),
    ],
)
def test_differences_are_marked(text: str, reference: str, first: str, expected: str) -> None:
    assert marked(text, reference, first) == expected


def test_differences_are_of_letters_where_there_are_no_spaces() -> None:
    assert marked("我很好", "我不好", "我很好", language="zh-CN") == "我{很}好"


def test_case_makes_no_difference_where_a_run_has_lower_case_only() -> None:
    eval_set = EvalSet(["x"], ["A Dog sees ."], "source", "reference")
    runs = [outputs_of("first", "a dog sees .", lowercase=True), outputs_of("second", "A Dog hears .")]
    first, second = sample(runs, eval_set, 0).renderings
    assert first.chrf == pytest.approx(100)
    assert [(span.text.strip(), span.different) for span in second.spans if span.missing] == [("hears", True)]
    predicted = replace(runs[0], log_probabilities=[0.0], hits=[[True]], target_ids=[[3]])
    (scores,) = (each for each in analyses([predicted], eval_set, {}, ["bleu"]) if each.name == "bleu-by-length")
    assert [value.value for value in scores.systems["first"] if value.size] == [pytest.approx(100)]


def test_samples_are_spread_and_those_that_differ() -> None:
    assert spread_lines(1200) == [100, 300, 500, 700, 900, 1100]
    assert spread_lines(2) == [0, 1]
    eval_set = EvalSet(["x y", "x", "x y z"], ["a dog", "the cat", "it is"], "source", "reference")
    runs = [outputs_of("first", "a dog", "the cat", "it was"), outputs_of("second", "a dog", "zzz", "it is")]
    assert different_lines(runs, eval_set, 6) == [1, 2]
    assert different_lines(runs[:1], eval_set, 6) == []
    turned = EvalSet(eval_set.sources, ["a dog", "it is", "the cat"], "source", "reference")
    others = [outputs_of("first", "a dog", "it was", "the cat"), outputs_of("second", "a dog", "it is", "zzz")]
    assert different_lines(others, turned, 6) == [2, 1], "that on which they differ most comes first"
    assert different_lines(others, turned, 1) == [2]
    longer = EvalSet(["x " * 20, "x " * 12, "x " * 13], ["a dog", "the cat", "it is"], "source", "reference")
    assert attention_lines(longer, "de") == [1, 2]
    assert attention_lines(eval_set, "de") == [0, 1]
    long = EvalSet(["w " * 20, "w " * 30, "", "w " * 40], ["a"] * 4, "source", "reference")
    assert attention_lines(long, "de") == [0, 1], "there is nothing to draw of the empty one"
    without_spaces = EvalSet(["我" * 30, "狗", "我有一只猫"], ["a", "b", "c"], "source", "reference")
    assert attention_lines(without_spaces, "zh") == [1, 2]


@pytest.mark.skipif(BROWSER is None, reason="no chromium to look at the page with: apt-get install chromium")
def test_in_a_browser_nothing_is_too_wide_broken_or_loaded(page: Page, reported: Path, tmp_path: Path) -> None:
    assert BROWSER is not None
    file = reported / "pages/report.html"
    for width in (390, 1280):
        found = browse(BROWSER, file, tmp_path, width)
        assert found["width"] == width
        assert found["scrolled"] <= width
        assert found["wide"] == []
        assert (found["broken"], found["images"]) == (0, len(page.all("img")))
        assert found["requests"] == []
    run_browser(BROWSER, tmp_path, f"--print-to-pdf={tmp_path / 'page.pdf'}", file.as_uri())
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
