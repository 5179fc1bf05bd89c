"""`jointnmt contrast`, on small suites and, if present, on real ones."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.evaluation.contrastive import judge_suite
from jointnmt.evaluation.contrastive_files import read_suite
from jointnmt.evaluation.contrastive_scores import TargetScore, scored_items
from jointnmt.evaluation.contrastive_suites import parse_suite
from jointnmt.text.segmenter import Segmenter
from jointnmt.translator import Translator
from support.contrastive import WMT16, wsd_item
from support.tiny_run import unbind, word_segmentation, write_run

pytestmark = pytest.mark.slow

Invoke = Callable[..., Result]

SENTENCES = [
    ("der Hund sieht die Katze .", "the dog sees the cat .", "the cat sees the dog ."),
    ("die Katze hört nicht !", "the cat hears not !", "the cat hears !"),
    ("die Katze und der Hund .", "the cat and the dog .", "the cat ."),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def invoke(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs `jointnmt contrast` with the run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(env={"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *words, of=run: runner.invoke(app, ["contrast", str(of), *map(str, words), "--device", "cpu"])


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite in ContraWSD's layout; the third item has no frequency, and a tie: the tiny model knows neither word."""
    items = [
        {**wsd_item("x", right, wrong), "source": source, "origin": "o", WMT16: "5/10"}
        for source, right, wrong in SENTENCES
    ]
    third = wsd_item("y", "the unknown .", "the hidden .", "the dog .", origin="o")
    items[2] = {**third, "source": SENTENCES[2][0]}
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(items), encoding="utf-8")
    return path


def expected(run: Path, summed: bool = False) -> list[bool]:
    """Whether the first two items of `suite` are right, computed independently."""
    found = []
    for source, right, wrong in SENTENCES[:2]:
        values = [
            score.token_log_probabilities for score in Translator.load(run, "cpu").score([source] * 2, [right, wrong])
        ]
        assert len(values[0]) == len(right.split()) + 1  # the end mark counts
        better, worse = (sum(each) if summed else sum(each) / len(each) for each in values)
        found.append(better > worse)
    return found


@pytest.mark.parametrize("summed", [False, True])
def test_the_command_scores_as_the_translator_does(invoke: Invoke, suite: Path, run: Path, summed: bool) -> None:
    result = invoke(suite, "--json", *(["--sum"] if summed else []))
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    right = sum(expected(run, summed))  # the third item is a tie, so it is wrong
    assert (report["right"], report["total"], report["ties"]) == (right, 3, 1)
    assert report["accuracy"] == pytest.approx(right / 3)
    assert report["scoring"] == ("summed" if summed else "length-normalised")
    assert (report["kind"], report["unit"], report["skipped"]) == ("contrawsd", "item", 0)
    assert (report["run"], report["suite"], report["frequency_corpus"]) == (str(run), str(suite), "wmt16")
    assert [each["group"] for each in report["breakdowns"]["class"]["groups"]] == ["Bank:x", "Bank:y"]
    assert report["breakdowns"]["frequency"]["left_out"] == 1  # the third item has none


def test_every_pair_is_scored_once(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    score_stream = Translator.score_stream

    def counting(self: Translator, sources: Any, targets: Any, *more: Any, **named: Any) -> Any:
        pairs = list(zip(sources, targets, strict=True))
        seen.extend(pairs)
        return score_stream(self, *zip(*pairs, strict=True), *more, **named)

    monkeypatch.setattr(Translator, "score_stream", counting)
    items = [
        {**wsd_item("x", right, wrong, wrong), "source": source, "origin": "o"} for source, right, wrong in SENTENCES
    ]
    (tmp_path / "twice.json").write_text(json.dumps(items * 2), encoding="utf-8")
    report = json.loads(invoke("twice.json", "--json").stdout)
    assert (report["total"], report["pairs"]["total"]) == (6, 12)
    assert len(seen) == len(set(seen)) == 6


def test_scores_of_each_item_are_kept(invoke: Invoke, suite: Path, run: Path) -> None:
    result = invoke(suite, "--scores", "scores.jsonl", "--csv", "all.csv")
    assert result.exit_code == 0, result.stderr
    records = [json.loads(line) for line in Path("scores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["right"] for record in records] == [*expected(run), False]
    assert [record["item"] for record in records] == [1, 2, 3]
    assert (records[0]["word"], records[0]["sense"], records[0]["sense_frequency"]) == ("Bank", "x", 5)
    for record, (source, *_) in zip(records, SENTENCES, strict=True):
        texts = [record["reference"], *record["contrasts"]]
        found = Translator.load(run, "cpu").score([source] * len(texts), [each["text"] for each in texts])
        for each, score in zip(texts, found, strict=True):
            assert each["log_probability"] == pytest.approx(score.log_probability, rel=1e-5)
            assert each["tokens"] == len(score.token_log_probabilities)
            assert each["score"] == pytest.approx(each["log_probability"] / each["tokens"])
    tie = records[2]
    assert tie["contrasts"][0]["log_probability"] == tie["reference"]["log_probability"]
    with Path("all.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["breakdown"], row["group"]) for row in rows] == [
        ("all", ""),
        ("class", "Bank:x"),
        ("class", "Bank:y"),
        ("frequency", "0-20"),
        ("type", "word_sense"),
    ]
    assert (rows[1]["right"], rows[1]["total"]) == (str(sum(expected(run))), "2")
    assert (rows[1]["frequency"], rows[1]["relative_frequency"], rows[2]["frequency"]) == ("5", "0.5", "")


def test_the_table_says_what_was_compared(invoke: Invoke, suite: Path) -> None:
    table = invoke(suite).stdout
    for shown in (
        "length-normalised",
        "ContraWSD",
        "A tie is wrong; ties: 1.",
        "By class",
        "Bank:x",
        "wmt16",
        "0.500",
    ):
        assert shown in table
    assert "Items without frequency in the suite, left out: 1." in table
    assert "summed log-probabilities" in invoke(suite, "--sum").stdout


def test_compressed_suites_are_read(invoke: Invoke, suite: Path) -> None:
    plain = json.loads(invoke(suite, "--json").stdout)
    for name, compress in (("packed.json.gz", gzip.compress), ("packed.json.xz", lzma.compress)):
        Path(name).write_bytes(compress(suite.read_bytes()))
        assert json.loads(invoke(name, "--json").stdout) == {**plain, "suite": name}


def write_pairs(folder: Path, languages: tuple[str, str] = ("de", "en")) -> Path:
    folder.mkdir(parents=True)
    source, target = languages
    for name, column in ((f"src.{source}", 0), (f"tgt.correct.{target}", 1), (f"tgt.incorrect.{target}", 2)):
        (folder / name).write_text("".join(f"{row[column]}\n" for row in SENTENCES), encoding="utf-8")
    return folder


def test_minimal_pairs_by_lines_and_by_folder(invoke: Invoke, tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "pairs" / "negation.human")
    files = [folder / name for name in ("src.de", "tgt.correct.en", "tgt.incorrect.en")]
    result = invoke("--source", files[0], "--right", files[1], "--wrong", files[2], "--json")
    assert result.exit_code == 0, result.stderr
    by_lines = json.loads(result.stdout)
    assert (by_lines["kind"], by_lines["unit"], by_lines["total"]) == ("lines", "pair", 3)
    assert by_lines["breakdowns"] == {"type": {"groups": [], "left_out": 3}}
    one = json.loads(invoke(folder, "--json").stdout)
    assert one["right"] == by_lines["right"]
    files[1].rename(files[1].with_name("tgt.correct.en.old"))
    files[1].with_name("tgt.correct.en.gz").write_bytes(
        gzip.compress(files[1].with_name("tgt.correct.en.old").read_bytes())
    )
    files[1].with_name("tgt.correct.en.old").unlink()
    write_pairs(tmp_path / "pairs" / "agreement.mt")
    (tmp_path / "pairs" / "notes").mkdir()
    both = json.loads(invoke("pairs", "--json").stdout)
    assert (both["right"], both["total"]) == (2 * one["right"], 6)
    counts = [(each["group"], each["total"]) for each in both["breakdowns"]["type"]["groups"]]
    assert counts == [("agreement.mt", 3), ("negation.human", 3)]


def test_other_languages_are_refused(invoke: Invoke, suite: Path, run: Path, tmp_path: Path) -> None:
    renamed = suite.rename(tmp_path / "mine.en-de.json")
    result = invoke(renamed)
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"this suite is en-de, but {run} translates de-en" in result.stderr
    assert invoke(renamed, "--any-language").exit_code == 0
    renamed = renamed.rename(tmp_path / "my-de-en.json")
    assert invoke(renamed).exit_code == 0
    regional = write_run(tmp_path / "regional")
    unbind(regional)
    word_segmentation(languages=("de-AT", "en_GB")).save(regional / "segmentation")
    assert invoke(renamed, of=regional).exit_code == 0
    folder = write_pairs(tmp_path / "pairs", ("de", "fr"))
    assert "is de-fr" in invoke(folder).stderr
    write_pairs(tmp_path / "all" / "one", ("de", "en"))
    write_pairs(tmp_path / "all" / "two", ("en", "de"))
    assert "de-en and en-de" in invoke("all").stderr


def test_long_items_are_refused_or_counted(invoke: Invoke, suite: Path, tmp_path: Path) -> None:
    short = write_run(tmp_path / "short", model={"max_length": 6})  # the first and third source have 6 words
    result = invoke(suite, of=short)
    assert result.exit_code == 3
    assert f"{suite}: item 1: the source has 7 tokens" in result.stderr
    assert "--skip-long" in result.stderr
    result = invoke(suite, "--skip-long", "--json", "--scores", "scores.jsonl", of=short)
    report = json.loads(result.stdout)
    assert (report["skipped"], report["total"]) == (2, 1)
    records = [json.loads(line) for line in Path("scores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record.get("skipped") for record in records] == [None, "too long", "too long"]
    assert "too long for the model: 2." in invoke(suite, "--skip-long", of=short).stdout
    tiny = write_run(tmp_path / "tiny", model={"max_length": 2})
    assert "nothing is left" in invoke(suite, "--skip-long", of=tiny).stderr


def test_a_contrast_that_is_the_reference_is_told(invoke: Invoke, tmp_path: Path) -> None:
    items = [{**wsd_item("x", right, right), "source": source, "origin": "o"} for source, right, _ in SENTENCES]
    (tmp_path / "same.json").write_text(json.dumps(items), encoding="utf-8")
    result = invoke("same.json", "--json")
    report = json.loads(result.stdout)
    assert (report["right"], report["ties"]) == (0, 3)
    assert "3 items have a contrast that is the reference itself" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("", 2, "Give a SUITE"),
        ("suite.json --source src.de", 2, "Give a SUITE"),
        ("--source src.de --right src.de", 2, "--wrong is missing"),
        ("suite.json --kind lines", 2, "lines"),
        ("pairs --kind mucow", 2, "--kind mucow"),
        ("suite.json --scores nowhere/scores", 2, "no folder nowhere"),
        ("suite.json --csv nowhere/scores", 2, "no folder nowhere"),
        ("suite.json --scores both --csv ./both", 2, "--scores and --csv: both name both"),
        ("nowhere.json", 3, "nowhere.json"),
        ("empty.json", 3, "empty.json"),
        ("broken.json.gz", 3, "broken.json.gz"),
        ("suite.json --kind mucow", 3, "item 3: has no 'origin'"),
        ("--source src.de --right src.de --wrong short.en", 3, "short.en: 1"),
        ("bare", 3, "neither here nor in its subfolders"),
        ("partly", 3, "has no tgt.correct.LANGUAGE"),
        ("doubled", 3, "src.de, src.de.gz, one too many"),
    ],
)
def test_wrong_usage_and_wrong_data(
    invoke: Invoke, suite: Path, tmp_path: Path, arguments: str, code: int, message: str
) -> None:
    (tmp_path / "src.de").write_text("der Hund\ndie Katze\n", encoding="utf-8")
    (tmp_path / "short.en").write_text("the dog\n", encoding="utf-8")
    (tmp_path / "empty.json").touch()
    (tmp_path / "broken.json.gz").write_bytes(b"no gzip")
    for name in ("pairs", "doubled", "partly"):
        write_pairs(tmp_path / name)
    (tmp_path / "doubled" / "src.de.gz").touch()
    (tmp_path / "partly" / "tgt.correct.en").unlink()
    (tmp_path / "bare").mkdir()
    items = json.loads(suite.read_text(encoding="utf-8"))
    items[2].pop("origin", None)
    suite.write_text(json.dumps(items), encoding="utf-8")
    result = invoke(*arguments.split())
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert result.stdout == ""


def test_a_source_of_nothing_is_named(invoke: Invoke, suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Segmenter.encode_ids_batch
    monkeypatch.setattr(
        Segmenter, "encode_ids_batch", lambda self, texts: [*encode(self, texts[:1]), *([] for _ in texts[1:])]
    )
    result = invoke(suite)
    assert result.exit_code == 3
    assert f"{suite}: item 2: the source is empty for the model" in result.stderr


def test_the_other_rule_needs_no_scoring(invoke: Invoke, suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke(suite, "--scores", "first.jsonl").exit_code == 0
    monkeypatch.setattr(Translator, "score_stream", None)
    result = invoke(suite, "--scores", "second.jsonl", "--sum")
    assert result.exit_code == 0, result.stderr
    first, second = (
        [json.loads(line)["reference"]["log_probability"] for line in Path(name).read_text("utf-8").splitlines()]
        for name in ("first.jsonl", "second.jsonl")
    )
    assert first == second


def test_two_models_are_compared_on_the_same_items(invoke: Invoke, suite: Path, run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", model={"max_length": 6})
    report = json.loads(invoke(suite, "--against", run, "--json").stdout)
    against = report["against"]
    same = {"right": report["right"], "total": 3, "accuracy": report["accuracy"]}
    same |= {"lost": 0, "gained": 0, "p_value": 1.0, "run": str(run)}
    assert {key: value for key, value in against.items() if key != "breakdowns"} == same
    assert list(against["breakdowns"]) == list(report["breakdowns"])
    assert "item 1: the source has 7 tokens" in invoke(suite, "--against", other).stderr
    result = invoke(suite, "--against", other, "--skip-long", "--json")
    report = json.loads(result.stdout)
    assert (report["skipped"], report["total"], report["against"]["total"]) == (2, 1, 1)
    alone = json.loads(invoke(suite, "--skip-long", "--json", of=other).stdout)
    assert report["against"]["right"] == alone["right"]
    table = invoke(suite, "--against", run).stdout
    assert "right alone" in table and "1.000" in table and "first alone" in table


def test_scores_of_both_models_are_kept(invoke: Invoke, suite: Path, run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", model={"ffn_dim": 12})
    assert invoke(suite, "--against", other, "--scores", "scores.jsonl", "--csv", "all.csv").exit_code == 0
    records = [json.loads(line) for line in Path("scores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(record["run"], record["item"]) for record in records] == [
        (str(r), i) for r in (run, other) for i in (1, 2, 3)
    ]
    ours, theirs = records[:3], records[3:]
    assert [record["right"] for record in theirs] == [*expected(other), False]
    assert ours[0]["reference"] != theirs[0]["reference"]
    with Path("all.csv").open(encoding="utf-8", newline="") as file:
        rows = {(row["breakdown"], row["group"]): row for row in csv.DictReader(file)}
    group = rows["class", "Bank:x"]
    pairs = [(a["right"], b["right"]) for a, b in zip(ours, theirs, strict=True) if a["sense"] == "x"]
    assert (group["right"], group["other_right"]) == tuple(str(sum(each)) for each in zip(*pairs, strict=True))
    assert (int(group["lost"]), int(group["gained"])) == (pairs.count((True, False)), pairs.count((False, True)))


# Real suites, if present.

REAL = [
    ("wsd-de-en.derived.json.gz", "mucow", 2970, 8804),
    ("mucow/lt-en.mucow.scoring.json.gz", "mucow", 356, 566),
    ("mucow/lv-en.mucow.scoring.json.gz", "mucow", 139, 179),
]


@pytest.mark.parametrize(("name", "kind", "items", "contrasts"), REAL)
def test_real_suites_are_read(corpora: Path, name: str, kind: str, items: int, contrasts: int) -> None:
    """Sizes are those given with the data; a model with equal scores for all texts is never right."""
    path = corpora / "contrastive" / name
    if not path.exists():
        pytest.skip(f"no {name} in {path.parent}")
    found = parse_suite(gzip.decompress(path.read_bytes()).decode(), name)
    assert (found.kind, len(found.items), sum(len(item.contrasts) for item in found.items)) == (kind, items, contrasts)
    alike = judge_suite(found, list(scored_items(found.items, [TargetScore(-1.0, 1)] * 12000)), "summed")
    assert (alike.accuracy.right, alike.accuracy.total, alike.ties) == (0, items, contrasts)


def test_real_minimal_pairs_are_read(corpora: Path, invoke: Invoke) -> None:
    folder = corpora / "contrastive" / "distil-lingeval"
    if not folder.exists():
        pytest.skip(f"no distil-lingeval in {folder.parent}")
    found, languages = read_suite(folder, {"--source": None, "--right": None, "--wrong": None}, None)
    assert languages == [("en", "de")]
    types = [contrast.type for item in found.items for contrast in item.contrasts]
    assert {name: types.count(name) for name in sorted(set(types), key=str)} == {
        "polarity_affix_del.human": 408,
        "polarity_particle_nicht_del.human": 2561,
        "subj_verb_agreement.mt": 6701,
    }
    assert "this suite is en-de" in invoke(folder).stderr
