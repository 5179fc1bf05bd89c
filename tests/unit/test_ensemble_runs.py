"""Several runs as one model: in Python, and as A+B of `translate`, `score` and `evaluate`."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from jointnmt.analysis.inspection import inspect_pair
from jointnmt.cli.main import app
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.evaluation.contrastive_suites import Contrast, Suite, SuiteItem
from jointnmt.models.ensemble import Ensemble
from jointnmt.runs import code
from jointnmt.runs.members import members_of
from jointnmt.search import SamplingConfig
from jointnmt.serving.engine import Engine
from jointnmt.serving.models import fingerprint
from jointnmt.serving.names import named_paths
from jointnmt.testset.contrast import fitting_items
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.translator import TranslationOptions, Translator, attend, next_words, trace_search
from support.serving import application, post
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, experiment, write_run, write_run_of

pytestmark = pytest.mark.slow

TRANSFORMER = {"family": "transformer", "encoder_layers": 1, "decoder_layers": 1}
SOURCES = ["der Hund sieht die Katze .", "", "die Katze hört nicht", "und der Hund ?"]
TARGETS = ["the dog sees the cat .", "", "the cat hears", "and the dog !"]

Invoke = Callable[..., Result]


def write(
    run: Path,
    sources: Sequence[str] = SOURCE_WORDS,
    targets: Sequence[str] = TARGET_WORDS,
    seed: int = 1,
    languages: tuple[str, str] = ("de", "en"),
    normalize: bool = False,
    lowercase: bool = False,
    tags: Sequence[str] = (),
    **changes: Any,
) -> Path:
    """A run with a random model of these words."""
    settings: dict[str, Any] = {"kind": "word", "joint": False, "vocabulary_size": 100, "min_frequency": 1}
    settings |= {"normalize_punctuation": normalize, "lowercase": lowercase, "tags": tags}
    config = SegmentationConfig.model_validate(settings)
    segmentation = Segmentation.train(config, [" ".join(sources)], [" ".join(targets)], *languages)
    return write_run_of(run, experiment(**changes), segmentation, seed)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs `a`, `b`, `c` with the same pieces, and `other`, whose source has others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOINTNMT_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "a")
    write(tmp_path / "b", seed=2, model=TRANSFORMER)
    write(tmp_path / "c", seed=3, model={"shortcuts": {}})
    write(tmp_path / "other", [*SOURCE_WORDS[2:], "Maus", "der"], seed=4, model={"max_length": 7})
    for name, lines in {"source": SOURCES, "target": TARGETS}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def invoke() -> Invoke:
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *arguments: runner.invoke(app, [*map(str, arguments)])


def load(*runs: str, **options: Any) -> Translator:
    return Translator.load(runs, "cpu", **options)


def mean_scores(*runs: str) -> list[list[float]]:
    """Logarithms of the mean probabilities of the targets' first pieces, from each run by itself."""
    each = [load(run).score(SOURCES, TARGETS) for run in runs]
    return [
        [math.log(sum(map(math.exp, values)) / len(values)) for values in zip(*tokens, strict=True)]
        for tokens in zip(*([scored.token_log_probabilities for scored in found] for found in each), strict=True)
    ]


@pytest.mark.parametrize("runs", [("a", "b", "c"), ("a", "other"), ("other", "b", "a")])
def test_scores_are_those_of_the_mean_probabilities(folder: Path, runs: tuple[str, ...]) -> None:
    for found, expected in zip(load(*runs).score(SOURCES, TARGETS), mean_scores(*runs), strict=True):
        assert found.token_log_probabilities == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("runs", [("a", "b", "c"), ("a", "other", "b")])
@pytest.mark.parametrize("search", [None, SamplingConfig()])
def test_an_ensemble_translates_as_one_run_does(folder: Path, runs: tuple[str, ...], search: Any) -> None:
    ensemble = load(*runs)
    options = TranslationOptions(search=search, num_best=2)
    found = list(ensemble.translate_stream(SOURCES, options, ["the", "", "", "dog"]))
    assert found[0].candidates[0].tokens[0] == "the" and not found[1].text
    for source, translation in zip(SOURCES, found, strict=True):
        for each in translation.candidates:
            [scored] = ensemble.score_stream([source], [" ".join(each.tokens[:-1])], pieces=True)
            assert each.token_log_probabilities == pytest.approx(scored.token_log_probabilities, abs=1e-5)
    if search is None:
        alone = [next(ensemble.translate_stream([line], options)) for line in SOURCES[2:]]
        assert alone == list(load(*runs, max_cells=1).translate_stream(SOURCES, options))[2:]


def test_one_run_is_the_run_itself(folder: Path) -> None:
    one = load("b")
    assert not isinstance(one.model, Ensemble) and one.run == Path("b") and not one.members
    assert one.translate(SOURCES) == Translator.load("b", "cpu").translate(SOURCES)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_precisions_are_those_of_its_members(folder: Path, precision: Any) -> None:
    for found, exact in zip(
        load("a", "b", precision=precision).score(SOURCES, TARGETS), load("a", "b").score(SOURCES, TARGETS), strict=True
    ):
        assert found.token_log_probabilities == pytest.approx(exact.token_log_probabilities, abs=0.1)


def test_the_strictest_member_says_how_long_a_line_may_be(folder: Path) -> None:
    line = "die Katze sieht die Katze nicht ."  # 7 pieces, 8 tokens
    assert load("a").translate([line])
    for runs in (("a", "other"), ("other", "a")):
        with pytest.raises(DataError, match=r"8 tokens, .* takes at most 7"):
            load(*runs).translate([line])
    sentences = ["die Katze .", "Hund sieht die Katze ."]
    split = load("a", "other").translate([" ".join(sentences)], TranslationOptions(split="long"))
    assert split == [" ".join(load("a", "other").translate(sentences))]
    write(folder / "short", seed=5, model={"max_length": 7})
    with pytest.raises(DataError, match="takes at most 7"):
        load("a", "short").translate([line])


@pytest.mark.parametrize("runs", [("a", "other"), ("other", "a")])
def test_items_that_one_member_does_not_take_are_skipped(folder: Path, runs: tuple[str, ...]) -> None:
    """Either member may be the one: they read different pieces, and `other` accepts fewer of them."""
    short, long = (
        SuiteItem(number, f"suite:{number}", source, "the cat", (Contrast("cat"),))
        for number, source in enumerate(("die Katze", "die Katze sieht die Katze nicht ."), start=1)
    )
    suite = Suite("suite", "lines", (short, long))
    assert fitting_items([(Path("both"), load(*runs))], suite, skip_long=True) == ([short], [long])
    with pytest.raises(DataError, match=r"suite:2: the source has 8 tokens.*takes at most 7"):
        fitting_items([(Path("both"), load(*runs))], suite, skip_long=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": TARGET_WORDS[1:]}, "one has 13 pieces, the other 12"),
        ({"targets": [*TARGET_WORDS[1:], "mouse"]}, r"piece \d+ is '.*' in one and '.*' in the other"),
        ({"languages": ("fr", "en")}, "one translates de-en, the other fr-en"),
        ({"lowercase": True}, "their segmentations differ in lowercase"),
    ],
)
def test_runs_that_write_other_pieces_are_refused_by_name(folder: Path, changes: dict[str, Any], message: str) -> None:
    write(folder / "wrong", **changes)
    with pytest.raises(ConfigurationError, match=f"a and wrong cannot be one ensemble.*{message}"):
        load("a", "wrong")


def test_members_may_prepare_sources_in_their_own_ways(folder: Path) -> None:
    write(folder / "plain", [*SOURCE_WORDS, '"'])
    write(folder / "normal", [*SOURCE_WORDS, '"'], normalize=True)
    [alone], [plain] = (load(run).score(["die Katze „"], ["the cat"]) for run in ("normal", "plain"))
    [both] = load("plain", "normal").score(["die Katze „"], ["the cat"])
    values = zip(alone.token_log_probabilities, plain.token_log_probabilities, strict=True)
    assert alone.token_log_probabilities != plain.token_log_probabilities
    assert both.token_log_probabilities == pytest.approx(
        [math.log((math.exp(one) + math.exp(two)) / 2) for one, two in values], abs=1e-5
    )


def test_a_run_given_twice_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="a: given twice in an ensemble"):
        load("a", "b", "a")
    with pytest.raises(ConfigurationError, match="a: given twice in an ensemble"):
        load("a", str(folder / "a"))  # by another name


def test_what_an_ensemble_has_not_is_refused(folder: Path) -> None:
    ensemble = load("c", "a")
    one = r"An ensemble cannot be inspected as one model"
    with pytest.raises(ConfigurationError, match=one):
        list(ensemble.translate_stream(SOURCES, TranslationOptions(gates=True)))
    with pytest.raises(ConfigurationError, match=one):
        attend(ensemble, SOURCES[0], TARGETS[0])
    with pytest.raises(ConfigurationError, match=one):
        inspect_pair(ensemble, SOURCES[0], TARGETS[0])
    with pytest.raises(ConfigurationError, match="cannot be saved as one model"):
        ensemble.save_pretrained(folder / "saved")
    with pytest.raises(ConfigurationError, match="their alignments cannot be averaged"):
        list(load("a", "other").align_stream(SOURCES, TARGETS))


def test_alignments_are_the_mean_of_the_members(folder: Path) -> None:
    found, one, two = (list(load(*runs).align_stream(SOURCES, TARGETS)) for runs in (("a", "b"), ("a",), ("b",)))
    assert np.allclose(found[0].alignment, (one[0].alignment + two[0].alignment) / 2, atol=1e-6)


def test_search_and_next_words_can_be_looked_at(folder: Path) -> None:
    for runs in (("a", "b"), ("a", "other")):
        ensemble = load(*runs)
        assert trace_search(ensemble, SOURCES[0]).translations[0] == ensemble.translate(SOURCES[:1])[0]
        [word, *_] = next_words(ensemble, SOURCES[0], "the").words
        [scored] = ensemble.score(SOURCES[:1], [f"the {word.word}"])
        assert word.log_probability == pytest.approx(scored.token_log_probabilities[1], abs=1e-5)


def test_commands_take_runs_joined_by_a_sign(folder: Path, invoke: Invoke) -> None:
    ensemble = load("a", "b", "c")
    result = invoke("translate", "a+b+c", "--input", "source", "--out", "out")
    assert result.exit_code == 0, result.stderr
    assert Path("out").read_text(encoding="utf-8").splitlines() == ensemble.translate(SOURCES)
    result = invoke("score", "a+b+c", "--source", "source", "--target", "target", "--json")
    scores = [json.loads(line)["log_probability"] for line in result.stdout.splitlines()]
    assert scores == pytest.approx([each.log_probability for each in ensemble.score(SOURCES, TARGETS)])


def test_evaluate_compares_an_ensemble_with_runs_and_with_systems_of_several(folder: Path, invoke: Invoke) -> None:
    arguments = ["a", "a+b", "--system", "seeds=b,c", "--system", "all=a+b+c"]
    test_set = ["--source", "source", "--reference", "target", "--metric", "chrf", "--resamples", 100, "--json"]
    result = invoke("evaluate", *arguments, *test_set)
    assert result.exit_code == 0, result.stderr
    one, two, seeds, three = json.loads(result.stdout)["systems"]
    assert [one["name"], two["name"], three["name"]] == ["a", "a+b", "all"] and len(seeds["runs"]) == 2
    lengths = sum(len(tokens) for tokens in mean_scores("a", "b"))
    for system, runs in ((two, ("a", "b")), (three, ("a", "b", "c"))):
        expected = math.exp(-sum(map(sum, mean_scores(*runs))) / lengths)
        assert system["perplexity"] == pytest.approx(expected, rel=1e-4)
    cached = sorted((folder / "cache" / "measured").glob("*.jsonl"))
    assert len(cached) == 10  # translations and predictions of a, b, c and both ensembles
    assert invoke("evaluate", *arguments, *test_set).stdout == result.stdout
    assert sorted((folder / "cache" / "measured").glob("*.jsonl")) == cached


def test_a_change_of_any_member_is_measured_anew(folder: Path) -> None:
    facts = load("a", "b").facts()
    assert facts != load("a", "c").facts() != load("a").facts()
    write_run(folder / "b2")
    assert load("a").facts() == Translator.load("a", "cpu").facts()
    assert set(load("a").facts()) == {"weights", "model", "segmentation"}


def test_what_other_code_has_computed_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of this package, and of the module of a family."""
    package, module = tmp_path / "jointnmt", tmp_path / "family.py"
    (package / "models").mkdir(parents=True)
    for path in (package / "models" / "layer.py", module):
        path.write_text("scale = 1\n")
    monkeypatch.setattr(code, "PACKAGE", package)
    monkeypatch.setitem(sys.modules, "family", SimpleNamespace(__file__=str(module)))
    model = type("Mine", (torch.nn.Module,), {"__module__": "family"})()
    before = code.code_digest(model, code.TRANSLATING)
    for path in (package / "models" / "layer.py", module):
        path.write_text("scale = 2\n")
        assert code.code_digest(model, code.TRANSLATING) != before
        path.write_text("scale = 1\n")
    assert code.code_digest(model, code.TRANSLATING) == before


def test_what_a_family_imports_from_beside_it_or_its_package_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    base = "import torch\nclass Mine(torch.nn.Module): pass\n"
    texts = {
        "lone_family.py": f"import lone_helper\nfrom lone_function import used\nfrom lone_sizes import WIDTH\n{base}",
        "lone_sizes.py": "WIDTH = 8\n",
        "lone_helper.py": "import lone_deeper\n",
        "lone_deeper.py": "",
        "lone_function.py": "def used(): pass\n",
        "lone_other.py": "",
        "whole_family/__init__.py": "",
        "whole_family/model.py": base,
        "whole_family/sub/later.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    importlib.import_module("lone_other")
    (tmp_path / "whole_family" / ".#model.py").symlink_to("of an editor")
    for family in ("lone_family", "whole_family.model"):
        model = importlib.import_module(family).Mine()
        before = code.code_digest(model, code.TRANSLATING)
        changed = set()
        for name, text in texts.items():
            (tmp_path / name).write_text(text + "# changed\n")
            if code.code_digest(model, code.TRANSLATING) != before:
                changed.add(name)
            (tmp_path / name).write_text(text)
        start = family.partition("_")[0]
        assert changed == {name for name in texts if name.startswith(start)} - {"lone_other.py"}
    unknown = type("Mine", (torch.nn.Module,), {"__module__": "nowhere_loaded"})()
    assert code.code_digest(unknown, code.TRANSLATING)


def test_names_of_runs_may_hold_the_sign(folder: Path, invoke: Invoke) -> None:
    (folder / "a").rename(folder / "a+b")
    assert members_of(Path("a+b")) == [Path("a+b")]
    assert members_of(Path("x/c+b")) == [Path("x/c"), Path("b")]
    assert members_of(Path("c")) == [Path("c")]
    result = invoke("translate", "c++b", "--input", "source")
    assert result.exit_code == 2 and "are joined by +" in result.stderr
    result = invoke("translate", "c+missing", "--input", "source")
    assert result.exit_code == 4 and "missing" in result.stderr


def test_a_server_translates_by_an_ensemble(folder: Path) -> None:
    paths = named_paths(["a+b", "mixed=a+other", "b"])
    assert {name: str(path) for name, path in paths.items()} == {"a+b": "a+b", "mixed": "a+other", "b": "b"}
    with TestClient(application(paths)) as client:

        def asked(path: str, model: str, status: int = 200, **values: Any) -> Any:
            return post(client, path, status, model=model, **values)

        for name, alignments in (("a+b", True), ("mixed", False)):
            translator = Translator.load(members_of(paths[name]))
            options = TranslationOptions(num_best=3, alignments=alignments)
            [expected] = translator.translate_stream([SOURCES[0]], options)
            values = {"texts": [SOURCES[0]], "num_best": 3, "alignments": alignments}
            [found] = asked("/v1/translate", name, **values)["translations"]
            assert [each["text"] for each in found["candidates"]] == [each.text for each in expected.candidates]
            assert [each["score"] for each in found["candidates"]] == pytest.approx(
                [each.score for each in expected.candidates], rel=1e-5
            )
            [score] = asked("/v1/score", name, sources=SOURCES[:1], targets=TARGETS[:1])["scores"]
            [own] = translator.score([SOURCES[0]], [TARGETS[0]])
            assert score["log_probability"] == pytest.approx(own.log_probability, rel=1e-5)
            asked("/v1/search", name, source=SOURCES[0], prefix="the")
            asked("/v1/alternatives", name, source=SOURCES[0], prefix="the")
            for route in ("attention", "inspect"):
                assert "Use one of its runs" in asked(f"/v1/{route}", name, 400, source=SOURCES[0])["error"]
        refused = asked("/v1/translate", "mixed", 400, texts=[SOURCES[0]], alignments=True)
        assert "their alignments cannot be averaged" in refused["error"]
        told = {each["name"]: each for each in client.get("/v1/models").json()["models"]}
        assert [each["has_alignments"] for each in told.values()] == [True, False, True]
        assert told["a+b"]["family"] == "reformer-fast + transformer"
        assert told["a+b"]["parameters"] == Translator.load(members_of(Path("a+b"))).num_parameters
        assert told["mixed"]["max_length"] == 7


def test_an_ensemble_is_loaded_anew_if_one_of_its_models_has_changed(folder: Path) -> None:
    before = fingerprint(Path("a+b"))
    assert before == fingerprint(Path("a+b")) != fingerprint(Path("a+c"))
    os.utime(folder / "b" / "model.safetensors", ns=(1, 1))
    assert fingerprint(Path("a+b")) != before


def test_servers_name_the_runs_of_ensembles(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="are joined by"):
        named_paths(["a+"])
    with pytest.raises(ConfigurationError, match=r"a model named a\+b is already given"):
        named_paths(["a+b", "a+b"])


def test_only_tags_of_all_models_are_tags(folder: Path) -> None:
    """To the others, they would be text."""
    for name, tags in (("tagged", ["<a>", "<b>"]), ("also", ["<b>"])):
        write(folder / name, tags=tags)
    assert Translator.load([folder / "tagged", folder / "also"], "cpu").tags == ("<b>",)
    with pytest.raises(ConfigurationError, match=r"not trained with the tag '<b>'. It has none"):
        Translator.load([folder / "tagged", folder / "a"], "cpu").translate(SOURCES, tag="<b>")
    for names in (("a", "tagged"), ("tagged", "a")):
        ensemble = Translator.load([folder / name for name in names], "cpu")
        assert Engine(ensemble).sentences("<b> Der Hund. Die Katze.", "always") == ["<b> Der Hund.", "Die Katze."]
