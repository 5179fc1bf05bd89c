"""`jointnmt explore`: the page of models at work, its size, and wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.serving import exploration
from jointnmt.translator import Translator
from support.serving import unpacked, write_model

pytestmark = pytest.mark.slow

SOURCE, TARGET = "der Hund sieht die Katze .", "the dog sees"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [write_model(folder / "one"), write_model(folder / "two", seed=1), write_model(folder / "back", "en", "de")]


def explore(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["explore", *map(str, arguments), "--device", "cpu"])


def explored(out: Path, *arguments: object) -> Any:
    result = explore(*arguments, "--out", out)
    assert result.exit_code == 0, result.stderr
    return json.loads(out.read_text(encoding="utf-8"))


def test_the_document_has_everything_of_each_model(runs: list[Path], tmp_path: Path) -> None:
    found = explored(
        tmp_path / "new" / "x.json", runs[0], f"other={runs[1]}", "--text", SOURCE, "--text", "die Katze",
        "--translation", TARGET, "--translation", "the cat",
    )  # fmt: skip
    assert found["format"] == 1
    assert [model["name"] for model in found["models"]] == ["one", "other"]
    assert [(each["source"], each["target"]) for each in found["sentences"]] == [
        (SOURCE, TARGET), ("die Katze", "the cat")
    ]  # fmt: skip
    for sentence in found["sentences"]:
        assert sentence["comparison"]["models"] == ["one", "other"]
        assert sentence["comparison"]["texts"][-1] == {"text": sentence["target"], "by": []}
        for name, run in zip(("one", "other"), runs, strict=False):
            model, own = sentence["by_model"][name], Translator.load(run, "cpu").translate([sentence["source"]])[0]
            assert {model["translation"]["translation"], model["inspection"]["translation"], model["score"]["target"],
                    model["search"]["translations"][0]} == {own}  # fmt: skip
            assert len(model["translation"]["candidates"]) == 3
            assert model["target_inspection"]["translation"] == sentence["target"]
            predicted = model["inspection"]["target_predicted"]
            assert model["score"]["tokens"] == predicted
            assert len(model["score"]["alternatives"]) == len(predicted)
            assert unpacked(model["inspection"]["alignment"]).sum(1) == pytest.approx(1, abs=1e-4)


def test_large_documents_say_what_they_lack(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "DOCUMENT_WEIGHTS", 900)
    (tmp_path / "a.de").write_text(f"{SOURCE}\nder\n", encoding="utf-8")
    result = explore(runs[0], "--input", tmp_path / "a.de", "--out", tmp_path / "x.json")
    assert result.exit_code == 0, result.stderr
    assert "1 of 2 grids is left out" in " ".join(result.stderr.split())
    found = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    heads = [each["by_model"]["one"]["inspection"]["grid_heads"] for each in found["sentences"]]
    assert heads == [None, "each"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--text", ""], 3, "text 1: "),
        (["--text", SOURCE, "--text", " "], 3, "text 2: The"),
        (["--text", SOURCE, "--max-tokens", "3"], 3, "more than 3 tokens"),
        ([], 2, "--text or by --input"),
        (["--text", SOURCE, "--translation", "a", "--translation", "b"], 2, "one for each"),
        (["--text", SOURCE, "--out", "x.txt"], 2, ".html or .json"),
        (["--input", "missing.de"], 3, "missing.de"),
    ],
)
def test_wrong_input_is_refused(
    runs: list[Path], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    out = [] if "--out" in arguments else ["--out", tmp_path / "x.json"]
    result = explore(runs[0], *out, *arguments)
    assert (result.exit_code, message in " ".join(result.stderr.split())) == (code, True), result.stderr
    assert not (tmp_path / "x.json").exists()


def test_every_text_is_checked_before_the_first_is_looked_into(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.de").write_text(f"{SOURCE}\nder\n\n", encoding="utf-8")
    monkeypatch.setattr(exploration, "_explored", None)
    result = explore(runs[0], "--input", tmp_path / "a.de", "--out", tmp_path / "x.json")
    assert result.exit_code == 3 and "a.de:3: The text is empty" in " ".join(result.stderr.split())


def test_models_are_of_one_pair(runs: list[Path], tmp_path: Path) -> None:
    result = explore(runs[0], runs[2], "--text", SOURCE, "--out", tmp_path / "x.json")
    assert result.exit_code == 2 and "different language pairs" in result.stderr
