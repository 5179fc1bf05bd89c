"""From a messy file to a translator, by the command line alone."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.experiment import Experiment
from jointnmt.planning import speed
from support.messy import messy_table, sentence_pairs

pytestmark = pytest.mark.integration

Invoke = Callable[..., Result]

PAIRS = sentence_pairs(1200)


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Invoke:
    monkeypatch.setattr(speed, "SECONDS", 0.05)
    monkeypatch.setenv("JOINTNMT_CACHE", str(tmp_path / "cache"))
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *arguments, **options: runner.invoke(app, [str(argument) for argument in arguments], **options)


def test_text_in_another_encoding_is_not_thrown_away(invoke: Invoke, tmp_path: Path) -> None:
    mine, folder = tmp_path / "mine.tsv", tmp_path / "mine"
    mine.write_bytes("".join(f"{a} Füße\t{b}\n" for a, b in PAIRS[:200]).encode("cp1252"))
    refused = invoke("init", folder, "--from", mine, "--source", "de", "--target", "en")
    assert refused.exit_code == 3
    assert "perhaps cp1252 (--encoding): 200 of 200 pairs would be left out" in refused.stderr
    assert not folder.exists()


@pytest.mark.parametrize("was_there", ["new", "empty", "link", "full"])
def test_an_interrupted_folder_may_be_made_again(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_there: str
) -> None:
    mine, folder = tmp_path / "mine.tsv", tmp_path / "mine"
    mine.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    if was_there == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to("elsewhere")
    elif was_there != "new":
        folder.mkdir()
    if was_there == "full":
        (folder / "recipe.yaml").write_text("name: of other text\n")
    before = {path.name: path.read_text() for path in folder.glob("*")}

    def interrupted(*_: object) -> None:
        assert list(folder.glob(".new-*/removed.tsv"))
        raise KeyboardInterrupt

    monkeypatch.setattr("jointnmt.planning.project.measure_speed", interrupted)
    overwrite = ["--overwrite"] if was_there == "full" else []
    assert invoke("init", folder, "--from", mine, *overwrite).exit_code == 130
    assert folder.exists() == (was_there != "new")
    assert {path.name: path.read_text() for path in folder.glob("*")} == before
    assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_a_messy_file_becomes_a_translator(invoke: Invoke, tmp_path: Path) -> None:
    messy_table(tmp_path / "mine.tsv", PAIRS, slice(300, 420))
    folder = tmp_path / "mine"
    begun = invoke("init", folder, "--from", tmp_path / "mine.tsv")
    assert begun.exit_code == 0, begun.output
    assert "lines 302 to 421: translations are 1 line earlier" in begun.output
    assert "with --longer 2.5 times as long" in " ".join(begun.output.split())
    assert f"jointnmt train {folder / 'recipe.yaml'} --out {folder / 'run'}" in begun.output

    parts = {
        part: [(folder / "data" / f"{part}.{code}").read_text(encoding="utf-8").splitlines() for code in ("de", "en")]
        for part in ("train", "valid", "test")
    }
    pairs = {part: list(zip(*sides, strict=True)) for part, sides in parts.items()}
    removed = (folder / "removed.tsv").read_text(encoding="utf-8").splitlines()
    assert sum(map(len, pairs.values())) + len(removed) == len(PAIRS) + 1
    assert set().union(*pairs.values()) <= set(PAIRS)
    for side in (0, 1):
        sentences = [{pair[side] for pair in pairs[part]} for part in pairs]
        assert not sentences[0] & (sentences[1] | sentences[2]) and not sentences[1] & sentences[2]

    recipe = folder / "recipe.yaml"
    experiment = Experiment.load(recipe)
    assert len(experiment.data.train) == 3  # with numbers, and as people type; there are no names
    updates = experiment.training.max_updates
    assert updates is not None and experiment.training.schedule.warmup_steps < updates / 9
    assert "measured here" in recipe.read_text(encoding="utf-8")

    short = ["training.max_updates=8", "training.schedule.zero_at=8", "training.schedule.warmup_steps=1"]
    short += ["validation.every_updates=4", "validation.bleu_sentences=4", "model.embed_dim=16", "model.ffn_dim=32"]
    settings = [part for setting in short for part in ("--set", setting)]
    trained = invoke("train", recipe, "--out", folder / "run", *settings)
    assert trained.exit_code == 0, trained.output
    translated = invoke("translate", folder / "run", "--input", folder / "data" / "test.de")
    assert translated.exit_code == 0, translated.output


def test_the_few_pairs_with_numbers_are_copied_with_others(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = speed.Speed({"float32": 1000.0}, 1.0, 1.0)
    monkeypatch.setattr("jointnmt.planning.project.measure_speed", lambda *_: found)
    pairs = PAIRS[:12] + [(re.sub("[0-9]+", "oft", de), re.sub("[0-9]+", "many", en)) for de, en in PAIRS[12:]]
    (tmp_path / "mine.tsv").write_text("".join(f"{de}\t{en}\n" for de, en in dict.fromkeys(pairs)), encoding="utf-8")
    begun = invoke("init", tmp_path / "mine", "--from", tmp_path / "mine.tsv", "--source", "de", "--target", "en")
    assert begun.exit_code == 0, begun.output
    said = re.search("numbers: ([0-9]+) copies of training pairs with other numbers", begun.output)
    assert said
    experiment = Experiment.load(tmp_path / "mine" / "recipe.yaml")
    files = [experiment.data.place(text).files[0].name for text in experiment.data.train]
    assert files == ["train.de", "numbers.de", "typed.de"]  # there are no names
    for code in ("de", "en"):
        train, copies, valid, test = (
            (tmp_path / "mine" / "data" / f"{part}.{code}").read_text(encoding="utf-8").splitlines()
            for part in ("train", "numbers", "valid", "test")
        )
        with_numbers = [re.sub(r"\d", "5", line) for line in train if re.search(r"\d", line)]
        assert len(copies) == int(said[1]) > len(with_numbers)
        assert {re.sub(r"\d", "5", line) for line in copies} == set(with_numbers)
        assert set(copies).isdisjoint(train + valid + test)


@pytest.mark.slow
def test_a_project_may_start_from_a_trained_model(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, folder, start = tmp_path / "mine.tsv", tmp_path / "mine", "package:tatoeba-de-en-transformer"
    mine.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:200]), encoding="utf-8")
    assert invoke("init", folder, "--from", mine).exit_code == 3, "too few for a new model"
    begun = invoke("init", folder, "--from", mine, "--start-from", start)
    assert begun.exit_code == 0, begun.output
    assert f"transformer from {start}, 8,000 pieces" in begun.output
    assert f"jointnmt evaluate {start} {folder / 'run'} --source" in begun.output
    experiment = Experiment.load(folder / "recipe.yaml")
    assert experiment.training.start is not None and experiment.training.start.name == start.removeprefix("package:")
    assert (experiment.data.filters.max_length, experiment.training.schedule.peak_rate) == (128, 0.001)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(experiment.training.start)
    (tmp_path / "bare").mkdir()
    for part in ("experiment.yaml", "segmentation"):
        (tmp_path / "bare" / part).symlink_to(experiment.training.start / part)
    again = invoke("init", "again", "--from", mine, "--start-from", "model", "--source", "de", "--target", "en")
    assert again.exit_code == 0, again.output
    assert Experiment.load(tmp_path / "again" / "recipe.yaml").training.start == experiment.training.start.resolve()
    region = invoke("init", "region", "--from", mine, "--start-from", start, "--source", "de-AT", "--target", "en")
    assert region.exit_code == 0 and Path("region/data/train.de").is_file(), region.output
    for options, code, message in (
        (["--start-from", start, "--family", "transformer"], 2, "has its own family"),
        (["--start-from", start, "--longer"], 2, "--longer is for a new model"),
        (["--start-from", start, "--source", "en", "--target", "de"], 2, "translates de to en, but your text is en to"),
        (["--start-from", "nowhere"], 4, "there is no trained model here"),
        (["--start-from", "bare"], 4, "has no weights"),
    ):
        refused = invoke("init", "other", "--from", mine, *options)
        assert refused.exit_code == code and message in " ".join(refused.stderr.split()), refused.stderr
        assert not Path("other").exists()


def test_pieces_that_the_model_to_start_from_does_not_know_are_told(invoke: Invoke, tmp_path: Path) -> None:
    mine = tmp_path / "mine.tsv"
    mine.write_text("".join(f"{a} ☺☻ ☹\t{b} ☺☻ ☹\n" for a, b in PAIRS[:200]), encoding="utf-8")
    options = ["--start-from", "package:tatoeba-de-en-transformer", "--source", "de", "--target", "en"]
    begun = invoke("init", tmp_path / "mine", "--from", mine, *options)
    assert begun.exit_code == 0, begun.output
    assert "pieces of your text are unknown to the model" in " ".join(begun.output.split())


@pytest.mark.slow
def test_given_parts_are_taken_and_two_files_belong_together(invoke: Invoke, tmp_path: Path) -> None:
    names = {"corpus": PAIRS[:900], "corpus-test": PAIRS[900:950]}
    for name, pairs in names.items():
        for side, code in enumerate(("de", "en")):
            (tmp_path / f"{name}.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    files = sorted(path for path in tmp_path.iterdir() if path.is_file())
    begun = invoke("init", tmp_path / "my own", "--from", *files, "--source", "en")
    assert begun.exit_code == 0, begun.output
    assert f"jointnmt train '{tmp_path / 'my own' / 'recipe.yaml'}' --out" in begun.output
    assert "test 50 (test as given)" in begun.output
    data = tmp_path / "my own" / "data"
    assert (data / "test.en").read_text(encoding="utf-8").splitlines() == [target for _, target in PAIRS[900:950]]
    assert "source_language: en" in (tmp_path / "my own" / "recipe.yaml").read_text(encoding="utf-8")

    again = invoke("init", tmp_path / "my own", "--from", *files)
    assert again.exit_code == 2 and "is not empty" in again.output


@pytest.mark.slow
def test_what_the_recipe_would_refuse_is_in_no_part(invoke: Invoke, tmp_path: Path) -> None:
    """Pairs with too many pieces, also in a given test text; and pairs that share a sentence with held-out text."""
    twice = [pair for a, b in PAIRS[:500] for pair in ((a, b), (a, f"So {b}"))]
    dice = random.Random(1)
    words = [" ".join("".join(dice.choices("0123456789", k=9)) for _ in range(70)) for _ in range(4)]
    for name, pairs in (("my", [*twice, (words[0], words[1])]), ("my-test", [*PAIRS[600:650], (words[2], words[3])])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    files = ["--from", tmp_path / "my.tsv", tmp_path / "my-test.tsv", "--source", "de", "--target", "en"]
    begun = invoke("init", tmp_path / "made", *files, "--longer")
    assert begun.exit_code == 0, begun.output
    assert "test 50 (test as given)" in begun.output and "pairs read" not in begun.output
    assert "--longer" not in begun.output
    removed = [line.split("\t") for line in (tmp_path / "made" / "removed.tsv").read_text("utf-8").splitlines()]
    overlap = [source for _, reason, source, _ in removed if reason == "overlap"]
    data = tmp_path / "made" / "data"
    sides = {part: (data / f"{part}.de").read_text("utf-8").splitlines() for part in ("train", "valid", "test")}
    assert overlap and set(overlap) <= set(sides["valid"]) and not set(overlap) & set(sides["train"])
    assert sum(map(len, sides.values())) + len(removed) == len(twice) + 52
    model = Experiment.load(tmp_path / "made" / "recipe.yaml").model
    long = [place for place, reason, *_ in removed if reason == "long"]
    assert model.max_length == 64 and long == [f"{tmp_path / 'my.tsv'}:1001", f"{tmp_path / 'my-test.tsv'}:51"]


def test_check_prints_text_or_json_and_writes_a_clean_copy(invoke: Invoke, tmp_path: Path) -> None:
    expected = messy_table(tmp_path / "mine.tsv", PAIRS, slice(300, 420))
    text = invoke("data", "check", tmp_path / "mine.tsv", "--fix", tmp_path / "clean")
    assert text.exit_code == 0, text.output
    assert "shifted: 120" in text.output and "line 9: Ceci est une phrase" in text.output
    assert (tmp_path / "clean" / "train.de").exists()
    found = json.loads(invoke("data", "check", tmp_path / "mine.tsv", "--json").stdout)
    assert {each["problem"]: each["count"] for each in found["texts"][0]["findings"]} == expected
    assert found["pairs"] - found["good"] == sum(expected.values())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["init", "NEW"], 2, "--from is missing"),
        (["init", "NEW", "--from", "few.tsv"], 3, "to learn from, of 50 read; the other"),
        (
            ["init", "NEW", "--from", "removed.tsv", "copies-test.tsv"],
            3,
            "no pair is left to use as test (copy: ",
        ),
        (["init", ".", "--overwrite", "--from", "data/train.de", "data/train.en"], 2, "would be overwritten"),
        (
            ["init", ".", "--overwrite", "--from", "removed.tsv"],
            2,
            "removed.tsv: is one of your files and would be overwritten",
        ),
        (["init", "NEW", "--from", "odd.tsv"], 2, "Give it: --source CODE"),
        (["init", "NEW", "--from", "few.tsv", "--source", "German"], 2, "is not a language code (is it de?)"),
        (["init", "FULL", "--from", "few.tsv"], 2, "is not empty"),
        (["data", "check", "none.tsv"], 3, "cannot be read"),
        (["data", "check", "few.tsv", "--columns", "0"], 2, "name two"),
        (["data", "check", "few.tsv", "--columns", "0,7"], 2, "there is no such column. Give two numbers"),
        (["data", "check", "few.tsv", "--encoding", "utf-9"], 2, "no such encoding"),
        (["data", "check", "few.tsv", "--encoding", "undefined"], 2, "no such encoding"),
        (["data", "check", "few.tsv", "--overwrite"], 2, "--fix"),
        (
            ["data", "check", "few.tsv", "--target", "de", "--source", "de", "--fix", "NEW"],
            2,
            "--source and --target are both de",
        ),
    ],
)
def test_wrong_usage_is_told(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:50]), encoding="utf-8")
    Path("odd.tsv").write_text("".join(f"{n} 12\t{n} 13\n" for n in range(900)), encoding="utf-8")
    Path("removed.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    Path("copies-test.tsv").write_text("".join(f"{a}\t{a}\n" for a, _ in PAIRS[:40]), encoding="utf-8")
    Path("data").mkdir()
    for side, name in enumerate(("data/train.de", "data/train.en")):
        Path(name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    Path("FULL").mkdir()
    Path("FULL/mine").touch()
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert message in result.output
    assert not Path("NEW").exists() and all(
        len(Path(name).read_bytes().splitlines()) == len(PAIRS) for name in ("data/train.de", "removed.tsv")
    )
