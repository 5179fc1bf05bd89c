"""The scripts in `examples` run on small models, and do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import yaml
from docs.notebooks import EXAMPLES, NOTEBOOKS, executed
from typer.testing import CliRunner

from jointnmt import Translator
from jointnmt.cli.main import app
from jointnmt.experiment import Experiment
from jointnmt.runs.weights import read_weights
from support.tiny import tiny_recipe, write_corpus
from support.tiny_run import experiment, write_run, write_run_of


def run_example(name: str, *arguments: object, stdin: str = "") -> str:
    """Standard output of an example, which must succeed."""
    result = subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        input=stdin,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_there_is_a_test_of_every_example() -> None:
    tested = re.findall(r'run_example\("(\w+\.py)"', Path(__file__).read_text(encoding="utf-8"))
    apart = {path.name.removeprefix("test_") for path in Path(__file__).parent.glob("test_serve_on_ray.py")}
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*tested} | apart


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_what_it_gives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kept = nbformat.read(path, nbformat.NO_CONVERT)
    again = executed(kept)
    trains = False
    for cell, new in zip(kept.cells, again.cells, strict=True):
        trains |= "## Train" in cell.source  # the numbers after this depend on the processor
        if cell.cell_type == "code":
            texts = (plain_text(each) for each in (cell, new))
            shown, found = (re.sub(r"\d", "0", text) if trains else text for text in texts)
            assert shown and shown == found, "Run: python -m docs.notebooks"


def plain_text(cell: Any) -> str:
    """Output of a cell of a notebook, as text."""
    return "".join(each.get("text") or each.data["text/plain"] for each in cell.outputs)


@pytest.mark.parametrize(
    "name",
    [
        *("translate.py", "train.py", "own_loop.py", "own_optimizer.py", "look_into_a_grid.py", "no_repeats.py"),
        "relative_grid.py",
    ],
)
def test_an_example_without_arguments_says_what_it_takes(name: str) -> None:
    with pytest.raises(AssertionError, match=rf"^[A-Z].*\s+python examples/{name}"):
        run_example(name)


def test_translate(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    sources = ["der Hund sieht die Katze .", "", "die Katze hört"]
    lines = run_example("translate.py", run, stdin="".join(f"{line}\n" for line in sources)).splitlines()
    first, empty, last = [each.candidates for each in Translator.load(run, "cpu").translate_stream(sources)]
    assert empty == ()
    assert lines == [f"{first[0].score:.3f}\t{first[0].text}", "", f"{last[0].score:.3f}\t{last[0].text}"]


def test_numbers_and_names_are_copied_or_not(tmp_path: Path) -> None:
    sources = ["Tom ist 37 Jahre alt.", "Wie geht es Tom?", "Er hat 12 Äpfel und 3 Birnen.", "Die Nummer ist 95824713."]
    targets = ["Tom is 37 years old.", "How's Tom?", "He has 12 apples and 3 pears.", "The number is 95824713."]
    for name, lines in (("a.de", sources), ("a.en", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    texts = "--source", tmp_path / "a.de", "--reference", tmp_path / "a.en"
    printed = run_example("copied_words.py", "package:tatoeba-de-en-transformer", *texts, "--times", 5)
    found = re.fullmatch(
        r"package:\S+: numbers (\d+)% of 10; by digits 2: (\d+)% of 5, 8: (\d+)% of 5\n"
        r"package:\S+: names (\d+)% of 2\n",
        printed,
    )
    assert found
    every, short, long, names = map(int, found.groups())
    assert short >= 80 and long <= 20 and every == (short + long) / 2 and names in (0, 50, 100)


def test_careless_lines_are_changed_as_their_names_say(tmp_path: Path) -> None:
    text = {
        "a.de": ["Tom ist heute sehr müde.", "Ich weiß, dass du hier bist", "Hallo!"],
        "a.en": ["Tom is very tired today.", "I know that you're here", "Hello!"],
    }
    for name, lines in text.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    texts = "--source", tmp_path / "a.de", "--reference", tmp_path / "a.en"
    printed = run_example("careless_text.py", "package:tatoeba-de-en-transformer", *texts).splitlines()
    head, *rows = (line.split("\t") for line in printed)
    assert head == ["model", "change", "lines", "BLEU before", "after", "difference", "words", "same"]
    assert {row[1]: int(row[2]) for row in rows} == {
        "no final mark": 2,
        "no commas": 1,
        "a word twice": 3,
        "two words swapped": 2,
        "two letters swapped": 3,
        "small first letter": 3,
        "lower case": 3,
    }
    for row in rows:
        assert float(row[4]) - float(row[3]) == pytest.approx(float(row[5]), abs=0.011)


def test_train_and_continue(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path, training__checkpoint_every=5)), encoding="utf-8")
    printed = run_example("train.py", recipe, tmp_path / "runs")
    assert re.fullmatch(r"[1-9]\d* tensors, 0 differ: none\n", printed)
    for name in ("at-once", "continued"):
        log = (tmp_path / "runs" / name / "log.jsonl").read_text(encoding="utf-8")
        assert '"step": 20' in log


def test_a_training_loop_of_ones_own(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    recipe, run, out = (tmp_path / name for name in ("recipe.yaml", "run", "out"))
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path)), encoding="utf-8")
    assert CliRunner().invoke(app, ["prepare", str(recipe), "--out", str(run)]).exit_code == 0
    lines = run_example("own_loop.py", recipe, run, out, 150).splitlines()
    perplexities = [float(re.sub(r"update \d+: perplexity ", "", line)) for line in lines]
    assert len(perplexities) == 15 and perplexities[-1] < perplexities[0] / 1.5
    assert Translator.load(out, "cpu").translate(["der Hund"])[0] is not None


def test_an_optimiser_and_a_decay_of_ones_own(tmp_path: Path) -> None:
    """An interrupted training ends with the same weights, which translate without the script."""
    write_corpus(tmp_path)
    recipe, whole, resumed = (tmp_path / name for name in ("recipe.yaml", "whole", "resumed"))
    schedule = {"warmup_steps": 4, "zero_at": 12}
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path, training__schedule=schedule)), encoding="utf-8")
    lines = run_example("own_optimizer.py", recipe, whole, "training.optimizer.decay=0.1").splitlines()
    assert [re.sub(r"[\d.]+$", "", line) for line in lines] == [f"update {n}: perplexity " for n in (3, 6, 9, 12)]
    run_example("own_optimizer.py", recipe, resumed, "training.optimizer.decay=0.1", "training.max_updates=7")
    run_example("own_optimizer.py", recipe, resumed, "training.optimizer.decay=0.1")
    one, other = (read_weights(run / "model.safetensors") for run in (whole, resumed))
    assert all(torch.equal(other[name], weight) for name, weight in one.items())
    records = [json.loads(line) for line in (whole / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    rates = {each["step"]: each["learning_rate"] for each in records if each["event"] == "train"}
    assert [rates[step] for step in (4, 8, 12)] == pytest.approx([3e-4, 3e-4 / 4, 0])
    assert Translator.load(whole, "cpu").translate(["der Hund"])[0] is not None


def test_look_into_a_grid(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    arguments = ("der Hund sieht die Katze .", "the dog sees the cat .", "Hund")
    lines = run_example("look_into_a_grid.py", run, *arguments).splitlines()
    found = [re.fullmatch(r"under (\S+): Hund attends to (\S+) \((\d+)%\)", line) for line in lines]
    assert [match and match[1] for match in found] == ["<s>", *arguments[1].split()]
    assert all(match and match[2] in {*arguments[0].split(), "</s>"} for match in found)
    assert all(match and int(match[3]) >= 100 // 7 for match in found)  # the largest of 7 weights


def test_a_grid_with_relative_positions(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    model = {"family": "reformer-base", "embed_dim": 16, "num_heads": 2, "ffn_dim": 32, "num_layers": 1}
    recipe.write_text(yaml.safe_dump({**tiny_recipe(tmp_path), "model": model}), encoding="utf-8")
    lines = run_example("relative_grid.py", recipe, tmp_path / "run").splitlines()
    perplexities = [float(re.sub(r"update \d+: perplexity ", "", line)) for line in lines]
    assert len(perplexities) > 1 and perplexities[-1] < perplexities[0]


def test_no_repeats(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", search={"beam_size": 3, "max_length_offset": 30})
    source = "der Hund sieht die Katze ."
    [plain] = Translator.load(run, "cpu").translate([source])
    [changed] = run_example("no_repeats.py", run, stdin=f"{source}\n").splitlines()
    for text, repeats in ((plain, True), (changed, False)):  # a random model repeats itself
        words = text.split()
        triples = list(zip(words, words[1:], words[2:], strict=False))
        assert len(triples) > 10 and (len(set(triples)) < len(triples)) == repeats, text


SHIPPED = ("package:tatoeba-de-en-reformer-fast", "Der Hund schläft.", "The dog sleeps.")


def test_a_piece_may_be_named_without_the_mark_of_its_beginning() -> None:
    described = (EXAMPLES / "look_into_a_grid.py").read_text(encoding="utf-8")
    assert '{} "{}" "{}" Hund\n'.format(*SHIPPED) in described
    lines = run_example("look_into_a_grid.py", *SHIPPED, "Hund").splitlines()
    assert lines and all(re.fullmatch(r"under \S+: ▁Hund attends to \S+ \(\d+%\)", line) for line in lines)


def test_a_piece_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(AssertionError, match=r"Katze is not a piece of the source, which has: ▁Der ▁Hund"):
        run_example("look_into_a_grid.py", *SHIPPED, "Katze")


def test_a_model_without_a_grid_is_named(tmp_path: Path) -> None:
    model = {"family": "transformer", "embed_dim": 8, "num_heads": 2, "ffn_dim": 8}
    run = write_run_of(tmp_path / "run", Experiment.parse({**experiment().plain(), "model": model}, origin="test"))
    with pytest.raises(AssertionError, match="of a family without a grid"):
        run_example("look_into_a_grid.py", run, "der Hund", "the dog", "Hund")
