"""`jointnmt evaluate`, `info` and `attention`: output, files, and wrong usage."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.attention import token_place
from jointnmt.cli.main import app
from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.scores import METRICS, corpus_scores
from jointnmt.experiment import Experiment
from jointnmt.models import FAMILIES
from jointnmt.translator import Translator
from support.tiny_run import experiment, unbind, word_segmentation, write_run, write_run_of

pytestmark = pytest.mark.slow

SOURCES = ["der Hund sieht die Katze .", "die Katze hört !", "die Katze und der Hund ."]
REFERENCES = ["the dog sees the cat .", "the cat hears !", "the cat and the dog ."]
GOOD = ["the dog sees the cat .", "the cat hears !", "the cat and a dog ."]
BAD = ["the cat sees the dog .", "the cat !", "dog ."]

Invoke = Callable[..., Result]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with the texts above."""
    for name, lines in (("source", SOURCES), ("reference", REFERENCES), ("good", GOOD), ("bad", BAD)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def invoke(texts: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs the command line in the folder of the texts."""
    monkeypatch.chdir(texts)
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *arguments: runner.invoke(app, list(map(str, arguments)))


def test_files_are_measured_as_corpus_scores_measures_them(invoke: Invoke) -> None:
    result = invoke("evaluate", "--hypothesis", "good", "--reference", "reference", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    (system,) = report["systems"]
    assert system == {"name": "good", "nll": None, "perplexity": None, **corpus_scores(GOOD, REFERENCES, "en").plain()}
    assert set(report) == {"language", "systems"}


def test_the_table_has_scores_signatures_and_the_length_ratio(invoke: Invoke) -> None:
    result = invoke("evaluate", "--hypothesis", "bad", "--reference", "reference")
    scores = corpus_scores(BAD, REFERENCES, "en")
    for metric in METRICS:
        score = getattr(scores, metric)
        assert f"{score.value:.2f}" in result.stdout
        assert score.signature in result.stdout
    assert f"{scores.length_ratio:.3f}" in result.stdout
    assert "resampling" not in result.stdout


def test_few_sentences_are_not_compared(invoke: Invoke) -> None:
    result = invoke("evaluate", "--hypothesis", "good", "--hypothesis", "bad", "--reference", "reference")
    assert "fewer than 10 sentences are not compared: no p-values (3 here)" in " ".join(result.stderr.split())
    assert "p = " not in result.stdout


def test_two_systems_are_compared_with_the_first(invoke: Invoke, texts: Path) -> None:
    for name in ("good", "bad", "reference"):
        (texts / name).write_text((texts / name).read_text(encoding="utf-8") * 4, encoding="utf-8")
    files = ["--hypothesis", "good", "--hypothesis", "bad", "--reference", "reference"]
    report = json.loads(invoke("evaluate", *files, "--json", "--resamples", 200).stdout)
    assert [system["name"] for system in report["systems"]] == ["good", "bad"]
    assert [comparison["metric"] for comparison in report["comparisons"]] == list(METRICS)
    for comparison in report["comparisons"]:
        first, second = comparison["systems"]
        assert first["p_value"] is None
        assert 0 < second["p_value"] <= 1
        assert "bs:200" in comparison["signature"]
    table = invoke("evaluate", *files).stdout
    assert "Paired bootstrap resampling" in table
    assert "p < 0.001*" in table


def test_a_missing_run_is_told_before_another_translates(
    invoke: Invoke, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "load", lambda *_: pytest.fail("a run was loaded"))
    texts = ["--source", "source", "--reference", "reference"]
    result = invoke("evaluate", run, "runs/nowhere", *texts)
    assert result.exit_code == 4 and "runs/nowhere: there is no trained model here" in " ".join(result.stderr.split())


def test_a_run_translates_first_and_gives_perplexity(invoke: Invoke, run: Path) -> None:
    result = invoke(
        "evaluate", run, "--source", "source", "--reference", "reference", "--show", 2, "--device", "cpu", "--json"
    )
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    translator = Translator.load(run, "cpu")
    translations = translator.translate(SOURCES)
    (system,) = report["systems"]
    assert system["bleu"]["value"] == pytest.approx(corpus_scores(translations, REFERENCES, "en").bleu.value)
    found = translator.score(SOURCES, REFERENCES)
    tokens = [value for score in found for value in score.token_log_probabilities]
    assert len(tokens) == sum(len(text.split()) + 1 for text in REFERENCES)  # end marks count
    assert system["perplexity"] == pytest.approx(math.exp(-sum(tokens) / len(tokens)))
    assert report["examples"] == [
        {"source": SOURCES[i], "references": [REFERENCES[i]], "translations": {str(run): [translations[i]]}}
        for i in range(2)
    ]


def test_what_a_run_computed_is_kept(invoke: Invoke, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["evaluate", run, "--source", "source", "--reference", "reference", "--device", "cpu", "--json"]
    first = invoke(*words)
    assert first.exit_code == 0, first.stderr
    monkeypatch.setattr(Translator, "translate_stream", None)
    monkeypatch.setattr(Translator, "score_stream", None)
    assert invoke(*words).stdout == first.stdout


def test_a_hypothesis_gets_the_perplexity_of_its_run(invoke: Invoke, run: Path) -> None:
    files = ["--hypothesis", "good", "--reference", "reference", "--source", "source", "--device", "cpu"]
    (system,) = json.loads(invoke("evaluate", *files, "--run", run, "--json").stdout)["systems"]
    both = json.loads(invoke("evaluate", run, *files, "--json", "--metric", "bleu").stdout)["systems"]
    assert [each["name"] for each in both] == ["good", str(run)]
    assert system["perplexity"] == pytest.approx(both[1]["perplexity"])
    assert both[0]["perplexity"] is None
    assert f"{system['perplexity']:.2f}" in invoke("evaluate", *files, "--run", run).stdout


def test_examples_stand_beside_source_and_reference(invoke: Invoke) -> None:
    result = invoke("evaluate", "--hypothesis", "bad", "--reference", "reference", "--source", "source", "--show", 1)
    for shown in (SOURCES[0], REFERENCES[0], BAD[0]):
        assert shown in result.stdout
    assert SOURCES[1] not in result.stdout


def test_runs_and_texts_have_the_same_languages(invoke: Invoke, run: Path, texts: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other")
    unbind(other)
    word_segmentation(languages=("en", "de")).save(other / "segmentation")
    both = invoke("evaluate", run, other, "--source", "source", "--reference", "reference", "--device", "cpu")
    assert (both.exit_code, both.stdout) == (2, "")
    assert "have different languages: de-en, en-de" in " ".join(both.stderr.split())
    (texts / "source").rename(texts / "test.en.gz")
    (texts / "reference").rename(texts / "test.de")
    words = ["--source", "test.en.gz", "--reference", "test.de", "--device", "cpu"]
    (texts / "test.en.gz").write_bytes(gzip.compress((texts / "test.en.gz").read_bytes()))
    exchanged = invoke("evaluate", run, *words)
    assert (exchanged.exit_code, exchanged.stdout) == (3, "")
    assert "the source is en and the target de, but the model translates de to en" in exchanged.stderr
    for command in ("score", "align"):
        result = invoke(command, run, "--source", "test.en.gz", "--target", "test.de", "--device", "cpu")
        assert (result.exit_code, result.stdout) == (3, "") and "Swap them" in result.stderr


def test_options_reach_the_metrics(invoke: Invoke, texts: Path) -> None:
    (texts / "upper").write_text("".join(f"{line.upper()}\n" for line in REFERENCES))
    with gzip.open(texts / "reference.gz", "wt") as file:
        file.write((texts / "reference").read_text())
    files = ["evaluate", "--hypothesis", "upper", "--reference", "reference.gz", "--json"]
    sensitive = json.loads(invoke(*files, "--metric", "chrf").stdout)["systems"][0]
    assert sensitive["chrf"]["value"] < 50
    assert sensitive["ter"] is None
    blind = json.loads(invoke(*files, "--lowercase", "--tokenized", "--language", "zh").stdout)["systems"][0]
    assert blind["chrf"]["value"] == pytest.approx(100)
    assert "pre:moses" not in blind["multi_bleu"]["signature"]
    assert "tok:zh" in blind["bleu"]["signature"]
    unused = invoke(*files, "--tokenized", "--metric", "bleu")
    assert unused.exit_code == 2 and "--tokenized is for multi_bleu and compound_bleu" in unused.stderr
    wrong = invoke(*files, "--language", "chinese")
    assert wrong.exit_code == 2 and "--language: 'chinese' is not a language code (is it zh?)" in wrong.stderr


def test_case_is_ignored_if_a_run_writes_lower_case_only(invoke: Invoke, texts: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "lower", segmentation={"kind": "word", "joint": False, "lowercase": True})
    files = ["--hypothesis", "good", "--reference", "capitals", "--json"]
    (texts / "capitals").write_text("".join(f"{line.title()}\n" for line in REFERENCES))
    result = invoke("evaluate", run, *files, "--source", "source", "--device", "cpu")
    assert all("case:lc" in system["bleu"]["signature"] for system in json.loads(result.stdout)["systems"])
    assert f"case is ignored, since only lower case is written by {run}" in " ".join(result.stderr.split())
    assert "other pieces" not in result.stderr
    other = write_run(tmp_path / "cased")
    two = invoke("evaluate", run, other, *files, "--source", "source", "--device", "cpu", "--metric", "bleu")
    assert "nll and perplexity are over other pieces than those of" in " ".join(two.stderr.split())
    result = invoke("evaluate", *files)
    assert "case:mixed" in json.loads(result.stdout)["systems"][0]["bleu"]["signature"], "nothing is known of a file"
    assert "in lower case: good; capitals is not" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--reference reference", 2, "nothing to evaluate"),
        ("RUN --reference reference", 2, "--source"),
        ("--hypothesis good --run RUN --reference reference", 2, "--source"),
        ("--hypothesis good --hypothesis good --reference reference", 2, "given twice"),
        ("--hypothesis good --hypothesis= --reference reference", 2, "is empty, and should name a file"),
        ("--hypothesis good --reference reference --metric meteor", 2, "meteor"),
        ("--hypothesis good --run RUN --run RUN --reference reference --source source", 2, "in their order"),
        ("--hypothesis good --reference nowhere", 3, "nowhere"),
        ("--hypothesis short --reference reference", 3, "short and reference are not parallel: 1 and 3"),
        ("--hypothesis good --reference reference --source short", 3, "short and reference"),
        ("--hypothesis latin --reference reference", 3, "latin:1"),
        ("--hypothesis empty --reference empty", 3, "no sentences"),
        ("nowhere --source source --reference reference", 4, "nowhere"),
    ],
)
def test_wrong_usage_and_wrong_data(
    invoke: Invoke, texts: Path, run: Path, arguments: str, code: int, message: str
) -> None:
    (texts / "short").write_text("one\n")
    (texts / "empty").write_text("")
    (texts / "latin").write_bytes("ä\n".encode("latin-1"))
    result = invoke("evaluate", *arguments.replace("RUN", str(run)).split())
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert result.stdout == ""


@pytest.fixture
def recipe(texts: Path) -> Path:
    path = texts / "recipe.yaml"
    path.write_text(experiment(model={"embed_dim": 256, "num_heads": 4, "ffn_dim": 1024}).to_yaml())
    return path


def test_info_counts_without_data_or_training(invoke: Invoke, recipe: Path) -> None:
    """Li et al. 2020, IWSLT settings: 17,574,144 parameters of Reformer-fast with 5 + 5 layers."""
    sizes = ["--source-vocabulary", 8848, "--target-vocabulary", 6632]
    layers = ["--set", "model.num_layers=5", "--set", "model.prenet_layers=5"]
    result = invoke("info", recipe, *sizes, *layers, "--json")
    assert result.exit_code == 0, result.stderr
    numbers = json.loads(result.stdout)
    assert (numbers["total"], numbers["embeddings"], numbers["rest"]) == (17_574_144, 5_660_672, 11_913_472)
    assert numbers["family"] == "reformer-fast"
    assert sum(sum(group.values()) for group in numbers["parts"].values()) == numbers["total"]
    table = invoke("info", recipe, *sizes, *layers).stdout
    for number in ("17,574,144", "5,660,672", "11,913,472", "8,848", "6,632"):
        assert number in table


def test_info_takes_vocabulary_sizes_from_the_recipe_or_the_run(invoke: Invoke, recipe: Path, run: Path) -> None:
    asked = json.loads(invoke("info", recipe, "--json", "--set", "segmentation.vocabulary_size=50").stdout)
    assert (asked["source_vocabulary"], asked["target_vocabulary"]) == (50, 50)
    joint = ["--set", "segmentation.joint=true", "--source-vocabulary", 70]
    numbers = json.loads(invoke("info", recipe, "--json", *joint).stdout)
    assert (numbers["source_vocabulary"], numbers["target_vocabulary"]) == (70, 70)
    of_run = json.loads(invoke("info", run, "--json").stdout)
    translator = Translator.load(run, "cpu")
    assert of_run["source_vocabulary"] == translator.segmentation.source.vocabulary_size
    assert of_run["target_vocabulary"] == translator.segmentation.target.vocabulary_size
    assert of_run["total"] == sum(parameter.numel() for parameter in translator.model.parameters())


def test_info_counts_a_shared_table_once(invoke: Invoke, recipe: Path) -> None:
    sizes = ["--source-vocabulary", 100, "--set", "model.embeddings=all", "--set", "segmentation.joint=true"]
    numbers = json.loads(invoke("info", recipe, *sizes, "--json").stdout)
    assert numbers["embeddings"] == 100 * 256
    assert invoke("info", recipe, *sizes).stdout.count("shared") == 2


def test_info_prints_a_markdown_row_for_each_recipe(invoke: Invoke, recipe: Path, run: Path) -> None:
    result = invoke("info", recipe, run, "--source-vocabulary", 8848, "--target-vocabulary", 6632, "--markdown")
    head, rule, first, second = result.stdout.splitlines()
    assert [line.count("|") for line in (head, rule, first, second)] == [7] * 4
    assert first.startswith(f"| `{recipe}` | 8,848 | 6,632 | 5,660,672 |")
    assert second.startswith(f"| `{run}` | 8,848 | 6,632 |")
    lines = invoke("info", recipe, run, "--json").stdout.splitlines()
    assert [json.loads(line)["family"] for line in lines] == ["reformer-fast"] * 2
    assert invoke("info", recipe, "--json", "--markdown").exit_code == 2


@pytest.mark.parametrize("arguments", [["nowhere.yaml"], ["recipe.yaml", "--set", "model.layers=3"]])
def test_info_of_a_wrong_recipe_is_2(invoke: Invoke, recipe: Path, arguments: list[str]) -> None:
    result = invoke("info", *arguments)
    assert result.exit_code == 2
    assert arguments[-1].partition("=")[0].removeprefix("model.") in result.stderr
    assert ("Check the path." in result.stderr) == (arguments == ["nowhere.yaml"])


def test_info_of_a_run_that_is_not_whole_is_4(invoke: Invoke, tmp_path: Path) -> None:
    missing = invoke("info", tmp_path)
    assert (missing.exit_code, "experiment.yaml is missing" in missing.stderr) == (4, True)
    run = write_run(tmp_path / "run")
    assert invoke("info", run, "--set", "model.layers=3").exit_code == 2
    (run / "segmentation" / "source.json").unlink()
    torn = invoke("info", run)
    assert (torn.exit_code, "segmentation is missing or damaged" in torn.stderr, torn.stdout) == (4, True, "")
    (run / "experiment.yaml").write_text("model: [")
    damaged = invoke("info", run)
    assert (damaged.exit_code, "not valid YAML" in damaged.stderr) == (4, True)


def write_family_run(family: str, run: Path) -> Path:
    """A RUN directory with a random model of the family."""
    model = {"family": family, "embed_dim": 8, "num_heads": 2, "ffn_dim": 8}
    configuration = Experiment.parse({**experiment().plain(), "model": model}, origin="test")
    return write_run_of(run, configuration)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_draws_a_translation_and_writes_its_numbers(invoke: Invoke, tmp_path: Path, family: str) -> None:
    run = write_family_run(family, tmp_path / "run")
    out = tmp_path / "pictures" / "attention.png"
    result = invoke("attention", run, "--text", SOURCES[0], "--out", out, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == Translator.load(run, "cpu").translate([SOURCES[0]])[0] + "\n"
    assert out.read_bytes().startswith(b"\x89PNG")
    numbers = json.loads(out.with_suffix(".json").read_text())
    assert numbers["source"] == SOURCES[0].split()
    assert len(numbers["panels"]) == (4 if family == "reformer-fast" else 3)
    for panel in numbers["panels"]:
        np.testing.assert_allclose(np.sum(panel["weights"], axis=1), 1, atol=1e-4)


def test_attention_of_a_given_translation(invoke: Invoke, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "attention.svg"
    result = invoke("attention", run, "--text", SOURCES[0], "--translation", REFERENCES[0], "--out", out)
    assert (result.exit_code, result.stdout) == (0, REFERENCES[0] + "\n")
    assert json.loads(out.with_suffix(".json").read_text())["target"] == REFERENCES[0].split()
    assert "Hund" in out.read_text()


def test_precision_is_that_of_search_and_not_of_attention_weights(invoke: Invoke, run: Path, tmp_path: Path) -> None:
    shown = " ".join(invoke("attention", "--help").output.replace("│", " ").split())
    assert "Attention weights are always computed in float32" in shown
    for precision in ("float32", "int8"):
        out = tmp_path / f"{precision}.svg"
        given = ("--text", SOURCES[0], "--translation", REFERENCES[0], "--precision", precision, "--device", "cpu")
        assert invoke("attention", run, *given, "--out", out).exit_code == 0
    assert (tmp_path / "float32.json").read_text() == (tmp_path / "int8.json").read_text()


def test_attention_of_chosen_tokens(invoke: Invoke, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "attention.svg"
    texts = ["--text", "der Hund sieht der Katze", "--translation", "the dog sees the cat", "--out", out]
    result = invoke("attention", run, *texts, "--of", "source:Hund", "--of", "target:4", "--by", "layer")
    assert result.exit_code == 0, result.stderr
    panels = json.loads(out.with_suffix(".json").read_text())["panels"]
    assert [panel["title"] for panel in panels[-2:]] == ["Source attention of “Hund”", "Target attention of “the”"]
    fourth = panels[-1]["weights"]  # under each source token, the attention of the second "the": five of six tokens
    assert np.shape(fourth) == (6, 6)
    assert [np.count_nonzero(row) for row in fourth] == [5] * 6
    for wrong, message in [
        ("source:der", "several such tokens. Give the position of one, as in source:#1: #1 der, #2 Hund"),
        ("target:Maus", "there is no such token"),
        ("target:6", "there is no such token"),
        ("target:#6", "there is no such token"),
        ("target:#0", "there is no such token"),
        ("Hund", "name the side"),
    ]:
        result = invoke("attention", run, *texts, "--of", wrong)
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("tokens", "wanted", "place"),
    [
        (["a", "b", "c"], "2", 1),
        (["a", "b", "c"], "#2", 1),
        (["<s>", "a", "b"], "#2", 2),
        (["a", "▁3", "c"], "3", 1),
        (["a", "▁3", "c"], "#3", 2),
        (["3", "b", "3"], "#3", 2),
        (["3", "b", "3"], "3", None),
        (["a", "b", "20"], "2", None),  # of the 20, or the second
    ],
)
def test_a_number_is_a_token_or_a_position(tokens: list[str], wanted: str, place: int | None) -> None:
    if place is not None:
        assert token_place("source", tokens, wanted) == place
        return
    with pytest.raises(ConfigurationError, match=r"as in source:#1: #1"):
        token_place("source", tokens, wanted)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--text", "der Hund", "--out", "picture.gif"], 2),
        (["--text", "", "--out", "picture.png"], 3),
        (["--text", "der Hund", "--translation", " ", "--out", "picture.png"], 3),
    ],
)
def test_attention_of_nothing(invoke: Invoke, run: Path, arguments: list[str], code: int) -> None:
    result = invoke("attention", run, *arguments)
    assert result.exit_code == code
    assert not list(Path().glob("picture.*"))
