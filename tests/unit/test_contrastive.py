"""Contrastive suites: how their files are read, what is right or wrong in them, and `jointnmt contrast`."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.errors import DataError
from jointnmt.evaluation.contrastive import (
    DISTANCE_EDGES,
    SENSE_EDGES,
    WORD_EDGES,
    Accuracy,
    PairedDifference,
    Rule,
    SuiteResult,
    TargetScore,
    _bins,
    compare,
    distinct_pairs,
    judge_suite,
    scored_items,
)
from jointnmt.evaluation.contrastive_suites import SenseFrequency, Suite, pair_items, parse_suite
from jointnmt.text.segmentation import Segmenter
from jointnmt.translator import Translator
from support.tiny_run import write_run

WMT16, FRENCH = "frequency of sense/ambig word in wmt16", "frequency of sense/ambig word in europarl-v7 and nc11"

Invoke = Callable[..., Result]


def wsd_item(sense: str, reference: str, *contrasts: str, **more: Any) -> dict[str, Any]:
    """An item about the word "Bank"."""
    errors = [{"contrastive": text, "replacement": "", "type": "word_sense"} for text in contrasts]
    return {
        "source": "die Bank",
        "reference": reference,
        "ambig word": "Bank",
        "sense": sense,
        "errors": errors,
        **more,
    }


def wsd(**more: Any) -> list[dict[str, Any]]:
    """Three items about benches, two about money."""
    rare, frequent = ({WMT16: counts} for counts in ("20/400", "380/400"))
    return [
        wsd_item("bench", "a", "b", origin="books", **rare, **more),
        wsd_item("bench", "a", "tie", origin="books", **rare, **more),
        wsd_item("bench", "long", "short", origin="news", **rare, **more),
        wsd_item("bank", "a", "b", "best", origin="news", **frequent, **more),
        wsd_item("bank", "a", "b", "c", origin="news", **frequent, **more),
    ]


SCORES = {
    "best": TargetScore(-2.0, 4),
    "a": TargetScore(-4.0, 4),
    "tie": TargetScore(-4.0, 4),
    "b": TargetScore(-8.0, 4),
    "c": TargetScore(-12.0, 4),
    "long": TargetScore(-6.0, 6),  # a mean of -1
    "short": TargetScore(-5.0, 2),  # a mean of -2.5
}


def verdict(suite: Suite, scores: Mapping[str, TargetScore] = SCORES, rule: Rule = "length-normalised") -> SuiteResult:
    given = [scores[target] for _, target in distinct_pairs(suite.items)]
    return judge_suite(suite, list(scored_items(suite.items, given)), rule)


def groups(found: SuiteResult, name: str) -> dict[str, tuple[int, int]]:
    """The numbers of right decisions and of all, by group, of a break-down."""
    (breakdown,) = [each for each in found.breakdowns if each.name == name]
    return {group.name: (group.accuracy.right, group.accuracy.total) for group in breakdown.groups}


def left_out(found: SuiteResult) -> dict[str, int]:
    return {each.name: each.left_out for each in found.breakdowns}


def suite_of(values: Any, kind: Any = None) -> Suite:
    return parse_suite(json.dumps(values), "suite.json", kind)


def test_an_item_is_right_if_its_reference_beats_all_contrasts() -> None:
    """By hand: the first, third and fifth are right; a tie and one better contrast are not."""
    found = verdict(suite_of(wsd()))
    assert (found.accuracy.right, found.accuracy.total, found.accuracy.value) == (3, 5, 0.6)
    assert (found.pairs.right, found.pairs.total) == (5, 7)
    assert (found.unit, found.ties, found.suite.kind) == ("item", 1, "contrawsd")
    assert groups(found, "class") == {"Bank:bank": (1, 2), "Bank:bench": (2, 3)}
    assert groups(found, "frequency") == {"0-20": (2, 3), "201-500": (1, 2)}
    assert groups(found, "type") == {"word_sense": (3, 5)}
    assert set(left_out(found).values()) == {0}


def test_sums_are_compared_if_asked_for() -> None:
    """The short contrast's sum is greater than the long reference's, though its mean is smaller: the third is wrong."""
    found = verdict(suite_of(wsd()), rule="summed")
    assert (found.accuracy.right, found.accuracy.total) == (2, 5)
    assert groups(found, "class")["Bank:bench"] == (1, 3)
    assert found.plain()["scoring"] == "summed"


def test_classes_have_their_frequencies() -> None:
    classes = verdict(suite_of(wsd())).breakdowns[0].groups
    assert [(each.name, each.frequency) for each in classes] == [
        ("Bank:bank", SenseFrequency(380, 400)),
        ("Bank:bench", SenseFrequency(20, 400)),
    ]
    assert classes[0].plain() == {
        "group": "Bank:bank",
        "right": 1,
        "total": 2,
        "accuracy": 0.5,
        "frequency": 380,
        "relative_frequency": 0.95,
    }
    assert SenseFrequency(0, 0).relative is None


def test_mucow_is_the_same_without_frequencies_by_origin() -> None:
    items = [{key: value for key, value in item.items() if key != WMT16} for item in wsd()]
    found = verdict(suite_of(items))
    assert (found.suite.kind, found.suite.frequency_corpus) == ("mucow", None)
    assert found.accuracy.right == 3
    assert groups(found, "origin") == {"books": (1, 2), "news": (2, 3)}
    assert [each.name for each in found.breakdowns] == ["class", "origin", "type"]


def test_frequencies_are_those_of_contrawsds_own_evaluation() -> None:
    items = wsd(**{"frequency of sense/ambig word in a corpus": "1/1", FRENCH: "7/7"})
    del items[1][WMT16]
    found = verdict(suite_of(items))
    assert found.suite.frequency_corpus == "wmt16"
    assert groups(found, "frequency") == {"0-20": (2, 2), "201-500": (1, 2)}
    assert left_out(found)["frequency"] == 1
    for item in items[:1] + items[2:]:
        del item[WMT16]
    assert suite_of(items).frequency_corpus == "europarl-v7 and nc11"
    assert verdict(suite_of(items, "mucow")).suite.frequency_corpus is None


def test_an_item_counts_once_for_each_type_of_its_contrasts() -> None:
    item = wsd_item("bench", "a", "b", "best", "c", "tie", origin="x")
    for error, kind in zip(item["errors"], ("near", "near", "far", None), strict=True):
        error["type"] = kind
    found = verdict(suite_of([item]))
    assert groups(found, "type") == {"near": (0, 1), "far": (1, 1)}
    assert left_out(found)["type"] == 1


def lingeval() -> list[dict[str, Any]]:
    """Six pairs, of which by hand three are right: those with b and c."""
    near = {"type": "agreement", "contrastive": "b", "distance": 0, "frequency": 5}
    return [
        {
            "source": "the bank",
            "reference": "a",
            "origin": "newstest.1",
            "errors": [
                near,
                {**near, "contrastive": "tie", "distance": 15, "frequency": 6},
                {**near, "contrastive": "c", "distance": 16, "frequency": "10001"},
                {"type": "negation", "contrastive": "best"},
            ],
        },
        {
            "source": "the other bank",
            "reference": "a",
            "errors": [{**near, "frequency": 3}, {**near, "contrastive": "best", "distance": 40, "frequency": None}],
        },
    ]


def test_lingeval_counts_pairs() -> None:
    found = verdict(suite_of(lingeval()))
    assert (found.suite.kind, found.unit, found.ties) == ("lingeval97", "pair", 1)
    assert (found.accuracy.right, found.accuracy.total) == (3, 6)
    assert found.pairs == found.accuracy
    assert groups(found, "type") == {"agreement": (3, 5), "negation": (0, 1)}
    assert groups(found, "distance") == {"0": (2, 2), "15": (0, 1), ">15": (1, 2)}
    assert groups(found, "frequency") == {"3-5": (2, 2), "6-10": (0, 1), ">10000": (1, 1)}
    assert left_out(found) == {"type": 0, "distance": 1, "frequency": 2}
    assert list(groups(found, "frequency")) == ["3-5", "6-10", ">10000"]  # in the order of the counts


def test_bins() -> None:
    sense, names = _bins(SENSE_EDGES)
    assert [sense(count) for count in (0, 20, 21, 50, 10000, 10001)] == ["0-20"] * 2 + ["21-50"] * 2 + [
        "5001-10000",
        ">10000",
    ]
    assert len(names) == 10
    word, names = _bins(WORD_EDGES)
    assert names[:6] == ["0", "1", "2", "3-5", "6-10", "11-20"]
    assert [word(count) for count in (0, 1, 2, 3, 5, 6, 10)] == ["0", "1", "2", "3-5", "3-5", "6-10", "6-10"]
    distance, names = _bins(DISTANCE_EDGES)
    assert names == [*map(str, range(16)), ">15"]
    assert (distance(15), distance(16)) == ("15", ">15")


def test_pairs_of_lines() -> None:
    items = pair_items(["s", "t", "u"], ["a", "a", "a"], ["b", "tie", "best"], ["src", "right", "wrong"], "negation")
    found = verdict(Suite("pairs", "lines", tuple(items)))
    assert (found.accuracy.right, found.accuracy.total, found.unit) == (1, 3, "pair")
    assert groups(found, "type") == {"negation": (1, 3)}
    assert items[2].place == "src:3"
    untyped = verdict(Suite("pairs", "lines", tuple(pair_items(["s"], ["a"], ["b"], ["src", "right", "wrong"]))))
    assert groups(untyped, "type") == {}


def test_distinct_texts_are_scored_once_and_equal_pieces_are_a_tie() -> None:
    items = suite_of([wsd_item("bench", "a", "b", "c", origin="x"), wsd_item("bench", "b", "a", origin="x")]).items
    assert [target for _, target in distinct_pairs(items)] == ["a", "b", "c"]
    scores = [TargetScore(-1.0, 2, "x <unk>"), TargetScore(-1.0000001, 2, "x <unk>"), TargetScore(-3.0, 2, "x y")]
    first, second = scored_items(items, scores)
    assert first.beaten("summed") == (False, True)
    assert (first.ties("summed"), second.ties("summed")) == (1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda items: items[1].pop("reference"), "item 2: has no 'reference'"),
        (lambda items: items[1].pop("sense"), "item 2: has no 'sense'"),
        (lambda items: items[1].pop("errors"), "item 2: has no 'errors'"),
        (lambda items: items[1].update(errors=[]), "item 2: 'errors' is empty"),
        (lambda items: items[1].update(errors={}), "item 2: 'errors' is an object"),
        (lambda items: items[1].update(errors=["text"]), "item 2, error 1: is a text"),
        (lambda items: items[3]["errors"][1].pop("contrastive"), "item 4, error 2: has no 'contrastive'"),
        (lambda items: items[3]["errors"][1].update(contrastive=" "), "item 4, error 2: 'contrastive' is empty"),
        (lambda items: items[1].update(source=3), "item 2: 'source' is a number"),
        (lambda items: items[1].update(source=None), "item 2: 'source' is null"),
        (lambda items: items[1].update(source="\ud800"), "item 2: 'source' holds half a character"),
        (lambda items: items[1].update({WMT16: "many"}), "'12/345'"),
        (lambda items: items.insert(0, []), "item 1: is a list"),
        (lambda items: items.clear(), "no items"),
    ],
)
def test_wrong_items_are_named(change: Callable[[Any], None], message: str) -> None:
    items = wsd()
    change(items)
    with pytest.raises(DataError) as caught:
        suite_of(items, "contrawsd")
    assert "suite.json" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [-1, 1.5, True, "far", [1]])
@pytest.mark.parametrize("key", ["distance", "frequency"])
def test_wrong_counts_are_named(key: str, value: Any) -> None:
    items = lingeval()
    items[0]["errors"][1][key] = value
    with pytest.raises(DataError, match=f"item 1, error 2: '{key}' is"):
        suite_of(items)


def test_the_kind_decides_what_is_needed() -> None:
    items = wsd()
    del items[4]["origin"]
    assert suite_of(items).kind == "contrawsd"
    with pytest.raises(DataError, match=r"item 5: has no 'origin'.*--kind"):
        suite_of(items, "mucow")
    assert verdict(suite_of(items, "lingeval97")).accuracy.total == 7
    del items[0]["errors"][0]["type"]
    with pytest.raises(DataError, match="item 1, error 1: has no 'type'"):
        suite_of(items, "lingeval97")


@pytest.mark.parametrize(
    ("text", "message"),
    [("no JSON", "suite.json:1: is not valid JSON"), ("{}", "holds an object"), ("[1,\n 2", "suite.json:2")],
)
def test_what_is_no_suite_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_suite(text, "suite.json")


def test_lines_that_do_not_belong_together_are_refused() -> None:
    names = ["src", "right", "wrong"]
    with pytest.raises(DataError, match="src: 2, right: 1, wrong: 2"):
        pair_items(["s", "t"], ["a"], ["b", "c"], names)
    with pytest.raises(DataError, match=r"wrong:2: this line is empty"):
        pair_items(["s", "t"], ["a", "b"], ["b", " "], names)
    with pytest.raises(DataError, match="src: there are no lines"):
        pair_items([], [], [], names)


# The command.

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
    """Whether the first two items of `suite` are right, by a computation of its own."""
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

    def counting(self: Translator, sources: Any, targets: Any, *more: Any) -> Any:
        pairs = list(zip(sources, targets, strict=True))
        seen.extend(pairs)
        return score_stream(self, [source for source, _ in pairs], [target for _, target in pairs], *more)

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
    assert "Items left out, as the suite tells no frequency of them: 1." in table
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
    assert invoke(renamed.rename(tmp_path / "my-de-en.json")).exit_code == 0
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
        ("--source src.de --right src.de", 2, "--wrong: is missing"),
        ("suite.json --kind lines", 2, "lines"),
        ("pairs --kind mucow", 2, "--kind mucow"),
        ("suite.json --scores nowhere/scores", 2, "no folder nowhere"),
        ("suite.json --csv nowhere/scores", 2, "no folder nowhere"),
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
    assert f"{suite}: item 2: the source holds nothing" in result.stderr


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


def test_two_verdicts_differ_by_group() -> None:
    """By hand: the second item is no longer a tie, the fourth is right now, and the fifth is wrong."""
    suite = suite_of(wsd())
    changed = {**SCORES, "tie": TargetScore(-4.4, 4), "best": TargetScore(-9.0, 4), "c": TargetScore(-3.0, 4)}
    found = compare(verdict(suite), verdict(suite, changed))
    assert found.overall == PairedDifference(Accuracy(4, 5), lost=1, gained=2)
    assert found.breakdowns["class"] == {
        "Bank:bank": PairedDifference(Accuracy(1, 2), lost=1, gained=1),
        "Bank:bench": PairedDifference(Accuracy(3, 3), lost=0, gained=1),
    }
    assert found.breakdowns["type"] == {"word_sense": found.overall}
    assert found.plain()["breakdowns"]["class"]["groups"][1] == {
        "group": "Bank:bench", "right": 3, "total": 3, "accuracy": 1.0, "lost": 0, "gained": 1, "p_value": 1.0,
    }  # fmt: skip


def test_the_test_of_two_models_is_exact() -> None:
    some = Accuracy(3, 10)
    assert PairedDifference(some, 1, 7).p_value == pytest.approx(2 * (1 + 8) / 2**8)
    assert PairedDifference(some, 7, 1).p_value == PairedDifference(some, 1, 7).p_value
    assert PairedDifference(some, 5, 5).p_value == PairedDifference(some, 0, 0).p_value == 1
    assert PairedDifference(some, 276, 269).p_value == pytest.approx(0.797, abs=1e-3)
    assert PairedDifference(some, 2000, 3000).p_value == pytest.approx(0, abs=1e-30)


# Real suites, where they are.

REAL = [
    ("wsd-de-en.derived.json.gz", "mucow", 2970, 8804),
    ("mucow/lt-en.mucow.scoring.json.gz", "mucow", 356, 566),
    ("mucow/lv-en.mucow.scoring.json.gz", "mucow", 139, 179),
]


@pytest.mark.parametrize(("name", "kind", "items", "contrasts"), REAL)
def test_real_suites_are_read(corpora: Path, name: str, kind: str, items: int, contrasts: int) -> None:
    """Sizes: those that come with the data; a model that likes every text alike is never right."""
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
    from jointnmt.evaluation.contrastive_files import _read_folder

    found, languages = _read_folder(folder)
    assert languages == [("en", "de")]
    types = [contrast.type for item in found.items for contrast in item.contrasts]
    assert {name: types.count(name) for name in sorted(set(types), key=str)} == {
        "polarity_affix_del.human": 408,
        "polarity_particle_nicht_del.human": 2561,
        "subj_verb_agreement.mt": 6701,
    }
    assert "this suite is en-de" in invoke(folder).stderr
