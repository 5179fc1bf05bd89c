"""`jointnmt evaluate` with systems of several runs, several references, and by length."""

from __future__ import annotations

import json
import lzma
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER
from typer.testing import CliRunner, Result

from jointnmt import Translator
from jointnmt.cli.main import app
from jointnmt.evaluation.scores import corpus_metrics, corpus_scores
from jointnmt.evaluation.significance import paired_bootstrap
from support.tiny_run import write_run

pytestmark = pytest.mark.slow

WORDS = [f"w{number}" for number in range(30)]
CHANCE = random.Random(3)
REFERENCES = [" ".join(CHANCE.choices(WORDS, k=4 + number % 20)) for number in range(80)]

Invoke = Callable[..., Result]


def spoilt(share: float, seed: int) -> list[str]:
    """The references with so many words replaced."""
    chance = random.Random(seed)
    return [" ".join("?" if chance.random() < share else word for word in text.split()) for text in REFERENCES]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(tmp_path)
    files = {"reference": REFERENCES, "source": REFERENCES, "other": spoilt(0.3, 9)}
    files |= {f"good{seed}": spoilt(0.1, seed) for seed in range(3)}
    files |= {f"bad{seed}": spoilt(0.3, 10 + seed) for seed in range(3)}
    for name, lines in files.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *arguments: runner.invoke(app, ["evaluate", *map(str, arguments)])


GROUPED = ("--system", "good=good0,good1,good2", "--system", "bad=bad0,bad1,bad2", "--reference", "reference")


def test_runs_of_a_system_are_averaged_and_compared_over_seeds(invoke: Invoke) -> None:
    result = invoke(*GROUPED, "--metric", "bleu", "--metric", "chrf", "--resamples", 200, "--json")
    assert result.exit_code == 0, result.stderr
    values = json.loads(result.stdout)
    good, bad = values["systems"]
    expected = [corpus_scores(spoilt(0.1, seed), REFERENCES, "en").bleu.value for seed in range(3)]
    assert [run["bleu"]["value"] for run in good["runs"]] == pytest.approx(expected)
    assert [run["name"] for run in bad["runs"]] == ["bad0", "bad1", "bad2"]
    for comparison in values["comparisons"]:
        first, second = comparison["systems"]
        assert first["score"] == pytest.approx(statistics.mean(first["runs"]))
        assert first["deviation"] == pytest.approx(statistics.stdev(first["runs"]))
        assert (first["p_value"], first["difference"]) == (None, None)
        assert second["difference"]["value"] == pytest.approx(second["score"] - first["score"])
        assert second["difference"]["p_value"] < 0.01
        assert second["p_value"] < 0.01
    assert values["comparisons"][0]["systems"][0]["runs"] == pytest.approx(expected)


def test_runs_of_one_kind_do_not_differ(invoke: Invoke) -> None:
    result = invoke("--system", "one=bad0,bad1", "--system", "same=bad2,other", "--reference", "reference", "--json")
    for comparison in json.loads(result.stdout)["comparisons"]:
        assert comparison["systems"][1]["difference"]["p_value"] > 0.05


def test_tables_have_means_deviations_and_both_tests(invoke: Invoke) -> None:
    result = invoke(*GROUPED, "--metric", "chrf", "--resamples", 100)
    for text in ("runs", "mean ± standard deviation", "Paired bootstrap", "Over seeds and sentences", "p = 0.010*"):
        assert text in result.stdout
    scores = [corpus_scores(spoilt(0.1, seed), REFERENCES, "en").chrf for seed in range(3)]
    values = [score.value for score in scores if score]
    assert f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}" in result.stdout
    alone = invoke("--hypothesis", "good0", "--hypothesis", "bad0", "--reference", "reference", "--resamples", 100)
    assert "Over seeds" not in alone.stdout and "standard deviation" not in alone.stdout


def test_a_single_run_of_a_system_is_that_run(invoke: Invoke) -> None:
    single = [
        "--system",
        "good=good0",
        "--hypothesis",
        "bad0",
        "--reference",
        "reference",
        "--json",
        "--resamples",
        100,
    ]
    grouped, plain = (
        json.loads(invoke(*arguments).stdout)
        for arguments in (single, [*single[:0], "--hypothesis", "bad0", "--hypothesis", "good0", *single[4:]])
    )
    assert grouped["systems"][1]["bleu"] == plain["systems"][1]["bleu"]
    assert [each["name"] for each in grouped["systems"]] == ["bad0", "good"]
    ours, theirs = (each["comparisons"][0]["systems"][1] for each in (grouped, plain))
    assert {**ours, "system": ""} == {**theirs, "system": ""}


def test_runs_and_files_may_be_mixed(invoke: Invoke, tmp_path: Path) -> None:
    source = ["der Hund sieht die Katze .", "die Katze hört !"] * 6
    Path("source").write_text("".join(f"{line}\n" for line in source))
    Path("reference").write_text("the dog sees the cat .\nthe cat hears !\n" * 6)
    Path("file").write_text("the dog .\nthe cat !\n" * 6)
    run = write_run(tmp_path / "run", data={**write_data(), "cache": str(tmp_path / "cache")})
    words = ["--system", f"mine={run},file", "--source", "source", "--reference", "reference", "--device", "cpu"]
    values = json.loads(invoke(*words, "--json", "--resamples", 100).stdout)
    (system,) = values["systems"]
    assert system["nll"] is None and system["runs"][0]["nll"] > 0
    assert "nll" not in {each["metric"] for each in values["comparisons"]}  # the file's run is unknown
    assert [each["name"] for each in system["runs"]] == [str(run), "file"]
    assert system["runs"][0]["perplexity"] > 1
    assert (system["runs"][1]["perplexity"], system["perplexity"]) == (None, None)


def test_runs_are_compared_by_the_probability_of_the_references_too(invoke: Invoke, tmp_path: Path) -> None:
    Path("source").write_text("der Hund sieht die Katze .\ndie Katze hört !\n" * 6)
    Path("reference").write_text("the dog sees the cat .\nthe cat hears !\n" * 6)
    Path("file").write_text("the dog .\nthe cat !\n" * 6)
    data = {**write_data(), "cache": str(tmp_path / "cache")}
    one, two = (write_run(tmp_path / name, data=data, seed=seed) for seed, name in enumerate(("one", "two"), start=1))
    words = [one, two, "--system", "file=file", "--source", "source", "--reference", "reference", "--device", "cpu"]
    words += ["--metric", "bleu", "--resamples", 100]
    values = json.loads(invoke(*words, "--json").stdout)
    by_bleu, by_nll = values["comparisons"]
    assert [each["system"] for each in by_bleu["systems"]] == [str(one), str(two), "file"]
    assert [each["system"] for each in by_nll["systems"]] == [str(one), str(two)]
    for result, system in zip(by_nll["systems"], values["systems"], strict=False):
        assert math.exp(result["score"]) == pytest.approx(system["perplexity"])
    lengths = json.loads(invoke(*words, "--by-length", "--length-edges", 5, "--json").stdout)["by_length"]
    shorter, longer = ([each["metric"] for each in part["comparisons"]] for part in lengths)
    assert shorter == longer == ["bleu", "nll"]
    table = invoke(*words, "--by-length").stdout
    assert f"{by_nll['systems'][1]['mean']:.3f}" in table
    assert by_nll["signature"] in table


def test_what_cannot_be_compared_by_likelihood_is_named(invoke: Invoke, tmp_path: Path) -> None:
    """Files come first; also a run with other pieces, and empty lines."""
    Path("source").write_text("der Hund sieht die Katze .\ndie Katze hört !\n" * 6)
    Path("reference").write_text("the dog sees the cat .\nthe cat hears !\n" * 5 + "\n" * 2)
    Path("file").write_text("\n" * 12)
    data = {**write_data(), "cache": str(tmp_path / "cache")}
    runs = [write_run(tmp_path / f"run{seed}", data=data, seed=seed) for seed in (1, 2)]
    words = [
        "--source",
        "source",
        "--reference",
        "reference",
        "--metric",
        "bleu",
        "--resamples",
        100,
        "--device",
        "cpu",
    ]
    found = invoke("--hypothesis", "file", *runs, *words)
    assert "file: its run is not given, so nll and perplexity are not compared" in found.stderr
    assert "reference: 2 of 12 lines are empty" in found.stderr
    assert "file: 12 of 12 lines are empty" in found.stderr
    assert "lower case" not in found.stderr


def test_edges_are_checked_before_anything_is_translated(invoke: Invoke) -> None:
    edges = ["--length-edges", 9, "--length-edges", 5]
    refused = invoke(*GROUPED, "--source", "source", "--by-length", *edges)
    assert refused.exit_code == 2
    assert "Bucket edges must increase, from above 1: 9, 5." in refused.stderr
    assert "comparing" not in refused.stderr
    assert "is for --by-length" in invoke(*GROUPED, "--length-edges", 5).stderr


def write_data() -> dict[str, Any]:
    return {"source_language": "de", "target_language": "en", "train": [{"source": "de", "target": "en"}]}


def test_scores_by_length_of_the_source(invoke: Invoke) -> None:
    lengths = ["--source", "source", "--by-length", "--length-edges", 10, "--length-edges", 20, "--metric", "bleu"]
    values = json.loads(invoke(*GROUPED, *lengths, "--json").stdout)["by_length"]
    assert [(each["bucket"], each["size"]) for each in values] == [("1-9", 24), ("10-19", 40), ("20+", 16)]
    rows = [row for row, text in enumerate(REFERENCES) if len(text.split()) >= 20]
    chosen = [[texts[row] for row in rows] for texts in (spoilt(0.1, 0), REFERENCES)]
    found = values[2]["comparisons"][0]["systems"]
    assert found[0]["runs"][0] == pytest.approx(corpus_scores(chosen[0], chosen[1], "en").bleu.value)
    assert found[1]["difference"]["p_value"] < 0.05
    table = invoke(*GROUPED, *lengths).stdout
    assert "BLEU by length of the source" in table and "10-19" in table
    few = json.loads(invoke(*GROUPED, *lengths, "--resamples", 100, "--json").stdout)["by_length"]
    assert "bs:100" in few[2]["comparisons"][0]["signature"]
    wrong = invoke(*GROUPED, "--by-length")
    assert (wrong.exit_code, "--source FILE" in wrong.stderr) == (2, True)


def test_lengths_are_counted_in_the_language_that_the_source_is_named_after(invoke: Invoke) -> None:
    """Words of a language without spaces are characters; without its name, there is a warning."""
    for name in ("source", "source.zh.xz"):
        with lzma.open(name, "wt") if name.endswith(".xz") else Path(name).open("w") as file:
            file.writelines(f"{'字' * (25 + number % 2)}\n" for number in range(80))
    words = ["--hypothesis", "good0", "--hypothesis", "bad0", "--reference", "reference", "--metric", "bleu", "--json"]
    for name, bucket, told in (("source.zh.xz", "20-29", False), ("source", "1-9", True)):
        result = invoke(*words, "--source", name, "--by-length", "--resamples", 100)
        found = {each["bucket"]: each["size"] for each in json.loads(result.stdout)["by_length"]}
        assert found[bucket] == 80
        assert ("seems to be written without spaces" in " ".join(result.stderr.split())) == told


def test_what_is_printed_as_json_is_json(invoke: Invoke) -> None:
    """Equal runs leave no variance of seeds."""
    Path("same").write_text(Path("good0").read_text())
    result = invoke("--system", "good=good0,same", "--hypothesis", "bad0", "--reference", "reference", "--json")
    values = json.loads(result.stdout, parse_constant=pytest.fail)
    assert values["comparisons"][0]["systems"][1]["difference"]["degrees_of_freedom"] == 1


def test_scores_of_each_sentence_are_those_of_sacrebleu(invoke: Invoke, tmp_path: Path) -> None:
    metrics = [word for name in ("bleu", "chrf", "ter", "multi_bleu") for word in ("--metric", name)]
    result = invoke(*GROUPED, "--hypothesis", "other", *metrics, "--sentences", "scores.tsv", "--resamples", 100)
    assert result.exit_code == 0, result.stderr
    head, *rows = [line.split("\t") for line in Path("scores.tsv").read_text().splitlines()]
    assert head == ["line", "system", "run", "bleu", "chrf", "ter", "multi_bleu", "log_probability", "pieces"]
    assert [row[:3] for row in rows[79:81]] == [["80", "other", "other"], ["1", "good", "good0"]]
    assert len(rows) == 7 * 80 and {tuple(row[-2:]) for row in rows} == {("", "")}
    for row in rows[::9]:
        text, reference = Path(row[2]).read_text().splitlines()[int(row[0]) - 1], [REFERENCES[int(row[0]) - 1]]
        expected = [
            sacrebleu.sentence_bleu(text, reference).score,
            sacrebleu.sentence_chrf(text, reference).score,
            sacrebleu.sentence_ter(text, reference).score,
            BLEU(smooth_method="none", tokenize="none", effective_order=True).sentence_score(text, reference).score,
        ]
        assert [float(value) for value in row[3:7]] == pytest.approx(expected, abs=1e-4)
    assert corpus_metrics("en", ["bleu"])["bleu"].of_each(["w1 w2"], [["w1 w2"]]) == [pytest.approx(100)]
    run = write_run(tmp_path / "run", segmentation={"kind": "word", "joint": False})
    result = invoke(run, "--source", "source", "--reference", "reference", "--metric", "chrf", "--sentences", "run.tsv")
    assert result.exit_code == 0, result.stderr
    found = [line.split("\t") for line in Path("run.tsv").read_text().splitlines()[1:]]
    pieces = sum(int(row[-1]) for row in found)
    nll = json.loads(invoke(run, "--source", "source", "--reference", "reference", "--json").stdout)["systems"][0][
        "nll"
    ]
    assert -sum(float(row[-2]) for row in found) / pieces == pytest.approx(nll, abs=1e-3)
    scored = Translator.load(run, "cpu").score([REFERENCES[3]], [REFERENCES[3]])[0]
    assert float(found[3][-2]) == pytest.approx(sum(scored.token_log_probabilities), abs=1e-3)
    for file in ("reference", "good1"):
        refused = invoke(*GROUPED, "--sentences", file)
        assert refused.exit_code == 2 and "is an input" in " ".join(refused.stderr.split())
    refused = invoke(run, "--source", "source", "--reference", "reference", "--sentences", run / "experiment.yaml")
    assert refused.exit_code == 2 and "belongs to the run" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("name", ["good[bold]", "good[/x]", "a:cat:"])
def test_names_are_printed_as_they_are(invoke: Invoke, name: str) -> None:
    words = ["--source", "source", "--by-length", "--metric", "bleu", "--resamples", 100]
    result = invoke("--system", f"{name}=good0,good1", "--system", "bad=bad0", "--reference", "reference", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.count(name) >= 4  # in three tables, and as the base of differences


def test_an_ensemble_of_models_of_the_package_is_one_run(invoke: Invoke) -> None:
    given = "both=package:tatoeba-de-en-transformer+package:tatoeba-de-en-reformer-base"
    Path("german").write_text("Der Hund schläft.\n")
    Path("english").write_text("The dog sleeps.\n")
    words = ["--source", "german", "--reference", "english", "--device", "cpu", "--metric", "bleu", "--json"]
    result = invoke("--system", given, *words)
    assert result.exit_code == 0, result.stderr
    (system,) = json.loads(result.stdout)["systems"]
    assert system["name"] == "both"
    result = invoke("--system", given, *words, "--sentences", "scores.tsv")
    assert result.exit_code == 0, result.stderr
    _, row = [line.split("\t") for line in Path("scores.tsv").read_text().splitlines()]
    assert -float(row[-2]) / int(row[-1]) == pytest.approx(system["nll"], abs=1e-4)


def test_several_references_are_those_of_sacrebleu(invoke: Invoke) -> None:
    both = ["--hypothesis", "bad0", "--reference", "reference", "--reference", "other"]
    (system,) = json.loads(invoke(*both, "--json", "--metric", "chrf", "--metric", "ter").stdout)["systems"]
    expected = BLEU(trg_lang="en").corpus_score(spoilt(0.3, 10), [REFERENCES, spoilt(0.3, 9)])
    assert system["bleu"]["value"] == pytest.approx(expected.score)
    assert all(system[metric]["signature"].startswith("nrefs:2") for metric in ("bleu", "chrf", "ter"))
    single = corpus_scores(spoilt(0.3, 10), REFERENCES, "en")
    assert system["bleu"]["value"] > single.bleu.value
    assert single.chrf and system["chrf"]["value"] > single.chrf.value
    invoke(*both, "--metric", "chrf", "--sentences", "scores.tsv")
    *_, last = [line.split("\t") for line in Path("scores.tsv").read_text().splitlines()]
    of_last = sacrebleu.sentence_chrf(spoilt(0.3, 10)[-1], [REFERENCES[-1], spoilt(0.3, 9)[-1]])
    assert float(last[3]) == pytest.approx(of_last.score, abs=1e-4)
    references = [REFERENCES, spoilt(0.3, 9)]
    systems = {"bad": spoilt(0.3, 10), "good": spoilt(0.1, 0)}
    (compared,) = paired_bootstrap(systems, references, corpus_metrics("en", ["bleu"]), samples=50)
    assert compared.systems[0].score == pytest.approx(expected.score)
    assert compared.signature.startswith("nrefs:2")
    shown = invoke(*both, "--show", 1).stdout
    assert spoilt(0.3, 9)[0] in shown and REFERENCES[0] in shown
    shown = json.loads(invoke(*both, "--system", "two=good0,good1", "--show", 1, "--json").stdout)
    translations = {"bad0": [spoilt(0.3, 10)[0]], "two": [spoilt(0.1, seed)[0] for seed in range(2)]}
    assert shown["examples"] == [
        {"source": None, "references": [texts[0] for texts in references], "translations": translations}
    ]


def test_an_empty_line_of_a_further_reference_is_none(invoke: Invoke) -> None:
    some = [text if number % 2 else "" for number, text in enumerate(REFERENCES)]
    Path("some").write_text("".join(f"{line}\n" for line in some))
    both = ["--hypothesis", "bad0", "--reference", "other", "--reference", "some"]
    result = invoke(*both, "--json", "--metric", "ter", "--metric", "chrf")
    assert f"some: {len(some) // 2} of {len(some)} lines are empty" in " ".join(result.stderr.split())
    (system,) = json.loads(result.stdout)["systems"]
    references = [spoilt(0.3, 9), [text or None for text in some]]
    for metric, expected in (("bleu", BLEU(trg_lang="en")), ("ter", TER())):
        assert system[metric]["value"] == pytest.approx(expected.corpus_score(spoilt(0.3, 10), references).score)
        assert system[metric]["signature"].startswith("nrefs:var")


def test_the_language_is_that_of_the_references_name(invoke: Invoke) -> None:
    Path("r.zh").write_text("".join(f"我喜欢{word}猫\n" for word in WORDS))
    Path("h").write_text("".join(f"我喜欢{word}狗\n" for word in WORDS))
    for name in ("r.zh", "r.zh-CN"):
        Path("r.zh").rename(name)
        (system,) = json.loads(invoke("--hypothesis", "h", "--reference", name, "--json").stdout)["systems"]
        assert "tok:zh" in system["bleu"]["signature"] and "asian:yes" in system["ter"]["signature"]
        assert system["bleu"]["value"] > 40 and system["ter"]["value"] < 50
        Path(name).rename("r.zh")
    Path("r.zh").rename("r.txt")  # the code of a language of Papua
    (system,) = json.loads(invoke("--hypothesis", "h", "--reference", "r.txt", "--json").stdout)["systems"]
    assert "tok:13a" in system["bleu"]["signature"] and "asian:no" in system["ter"]["signature"]


def test_copies_of_a_run_are_named(invoke: Invoke) -> None:
    Path("copy").write_bytes(Path("good0").read_bytes())
    result = invoke("--system", "a=good0,copy,good1", "--reference", "reference", "--metric", "bleu")
    assert "a: good0, copy have the same translations" in " ".join(result.stderr.split())
    assert "same translations" not in invoke(*GROUPED, "--metric", "bleu").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--system good0 --reference reference", 2, "NAME=A,B"),
        ("--system a= --reference reference", 2, "NAME=A,B"),
        ("--system a=good0,good0 --reference reference", 2, "good0: given twice"),
        ("--system a=good0 --system a=good1 --reference reference", 2, "a: given twice"),
        ("--system a=good0 --hypothesis good0 --reference reference", 2, "good0: given twice"),
        ("--system a=good0,nowhere --reference reference", 2, "nowhere is neither a RUN nor a file of translations"),
        ("--system a=good0,short --reference reference", 3, "short and reference are not parallel"),
        ("--hypothesis good0 --reference reference --reference short", 3, "short and reference are not parallel"),
    ],
)
def test_wrong_systems(invoke: Invoke, arguments: str, code: int, message: str) -> None:
    Path("short").write_text("one\n")
    result = invoke(*arguments.split())
    assert (result.exit_code, message in " ".join(result.stderr.split())) == (code, True), result.stderr
