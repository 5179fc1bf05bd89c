"""Recipes: extension, paths, settings that another family drops, and languages."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.data.pairs import read_pairs
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.models import FAMILIES
from jointnmt.recipe import PACKAGE, names, read_recipe
from support.tiny import write_corpus

EIGHT_LINES = """name: mine
data:
  source_language: de
  target_language: en
  train:
    - {source: train.de, target: train.en}
  validation:
    - {source: valid.de, target: valid.en}
"""


def write(folder: Path, name: str, values: dict[str, Any] | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values), encoding="utf-8")
    return path


def data(**values: Any) -> dict[str, Any]:
    return {"source_language": "de", "target_language": "en", **values}


def texts(name: str) -> list[dict[str, str]]:
    return [{"source": f"{name}.de", "target": f"{name}.en"}]


def places(recipe: Path, *settings: str) -> dict[str, str]:
    """Path of the first source file of each text."""
    config = Experiment.load(recipe, settings).data
    return {
        which: str(config.place(text).files[0]) for which in ("train", "validation") for text in getattr(config, which)
    }


def test_eight_lines_are_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path)
    recipe = write(tmp_path, "mine.yaml", EIGHT_LINES)
    monkeypatch.chdir("/")
    experiment = Experiment.load(recipe)
    assert len(EIGHT_LINES.splitlines()) == 8
    assert experiment.model.family == "transformer" and experiment.validation.patience
    assert len(list(read_pairs(experiment.data.train, experiment.data))) == 120


def test_a_part_of_a_section_is_completed_too(tmp_path: Path) -> None:
    recipe = write(tmp_path, "mine.yaml", EIGHT_LINES + "model: {family: reformer-fast}\ntraining: {max_epochs: 3}\n")
    assert Experiment.load(recipe).training.max_epochs == 3
    whole = write(tmp_path, "whole.yaml", EIGHT_LINES + "model: {family: reformer-fast}\ntraining: {max_epochs: 3}\n")
    assert Experiment.load(whole).model.embed_dim == 256, "a recipe that says both stands by itself"
    part = write(tmp_path, "part.yaml", EIGHT_LINES + "model: {family: reformer-fast}\n")
    assert Experiment.load(part).model.embed_dim == 128
    assert Experiment.load(part).training.schedule.warmup_steps == 300


def test_paths_are_relative_to_the_recipe_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {
        "name": "base",
        "extends": "package:small-corpus",
        "data": data(root="text", train=texts("t"), validation=texts("v")),
    }
    write(tmp_path, "a/base.yaml", base)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    here = str(tmp_path)
    cases: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "inherited": ({}, {"train": f"{here}/a/text/t.de", "validation": f"{here}/a/text/v.de"}),
        "own root": ({"root": "x"}, {"train": f"{here}/b/x/t.de", "validation": f"{here}/b/x/v.de"}),
        "absolute": ({"root": "/x"}, {"train": "/x/t.de", "validation": "/x/v.de"}),
        "working directory": ({"root": "cwd:x"}, {"train": f"{here}/x/t.de", "validation": f"{here}/x/v.de"}),
        "own text": ({"train": texts("mine")}, {"train": f"{here}/b/mine.de", "validation": f"{here}/a/text/v.de"}),
    }
    for name, (own, expected) in cases.items():
        recipe = write(tmp_path, "b/mine.yaml", {"extends": "../a/base.yaml", "data": own})
        assert places(recipe) == expected, name
    assert places(Path("b/mine.yaml"))["train"] == f"{here}/b/mine.de"
    of_setting = places(write(tmp_path, "b/mine.yaml", {"extends": "../a/base.yaml"}), "data.root=there")
    assert of_setting["train"] == f"{here}/there/t.de", "what a command says is relative to where it is called"


def test_the_configuration_of_a_run_is_a_recipe_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write(tmp_path, "mine.yaml", EIGHT_LINES)
    monkeypatch.chdir(tmp_path)
    experiment = Experiment.load(Path("mine.yaml"))
    again = write(tmp_path / "runs/mine", "experiment.yaml", experiment.to_yaml())
    monkeypatch.chdir("/")
    assert Experiment.load(again) == experiment == Experiment.load(recipe)


@pytest.mark.parametrize("family", FAMILIES)
def test_another_family_drops_the_keys_of_the_one_inherited(
    tmp_path: Path, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = write(
        tmp_path, "mine.yaml", {"extends": "package:tatoeba/de-en-reformer-fast", "model": {"family": family}}
    )
    with caplog.at_level(logging.INFO, "jointnmt"):
        by_recipe, by_setting = Experiment.load(recipe), Experiment.load(recipe, [f"model.family={family}"])
    assert by_recipe == by_setting
    assert (by_recipe.model.family, by_recipe.model.embed_dim) == (family, 128)
    dropped = {"transformer": "model.prenet_layers, model.num_layers", "reformer-base": "model.prenet_layers"}
    expected = f"ignores inherited settings of the reformer-fast: {dropped.get(family)}"
    assert (expected in caplog.text) is (family in dropped)
    other = next(each for each in FAMILIES if each != family)
    assert Experiment.load(recipe, [f"model.family={other}"]).model.family == other
    with pytest.raises(ConfigurationError, match="encoder_layer: is not a known key"):
        Experiment.load(recipe, ["model.family=transformer", "model.encoder_layer=2"])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("German", r"data.source_language: 'German' is not a language code \(is it de\?"),
        ("ge", "'ge' is no"),
        ("xx", "'xx' is no"),
    ],
)
def test_languages_are_codes(tmp_path: Path, code: str, message: str) -> None:
    recipe = write(tmp_path, "mine.yaml", EIGHT_LINES)
    with pytest.raises(ConfigurationError, match=message):
        Experiment.load(recipe, [f"data.source_language={code}"])
    for right in ("de", "pt-BR", "zh_CN", "nds", "sr-Latn"):
        assert Experiment.load(recipe, [f"data.source_language={right}"]).data.source_language == right


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("nowhere.yaml", r"mine\.yaml: extends a recipe that cannot be read: .*nowhere\.yaml"),
        ("package:nowhere", "package:nowhere: there is no such recipe. `jointnmt recipes` lists"),
        ("package:tatoeba/de-en-transfomer", "no such recipe. Did you mean package:tatoeba/de-en-transformer?"),
        ("package:../config", "there is no such recipe"),
        ([1], "extends should be the name of one file"),
    ],
)
def test_what_cannot_be_extended_is_told_with_the_recipe(tmp_path: Path, extends: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_recipe(write(tmp_path, "mine.yaml", {"extends": extends}))


def test_recipes_are_listed_and_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO")
    listed = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["recipes"])
    assert not caplog.records  # none of them is in a list of recipes
    assert listed.exit_code == 0 and all(f"\n  {name} " in listed.output for name in names())
    groups = listed.output.strip().split("\n\n")
    assert groups[0].startswith("To start from\n  demo ") and "\n  small-corpus " in groups[0]
    assert sum(group.startswith("Tatoeba German-English, short everyday sentences") for group in groups) == 1
    assert "The Transformer baseline." in listed.output
    one = CliRunner().invoke(app, ["recipes", "tatoeba/de-en-transformer"])
    assert yaml.safe_load(one.output)["extends"] == "_de-en.yaml"
    whole = yaml.safe_load(CliRunner().invoke(app, ["recipes", "tatoeba/de-en-transformer", "--whole"]).output)
    assert whole["segmentation"]["vocabulary_size"] == 8000 and Path(whole["data"]["root"]).is_dir()
    assert CliRunner().invoke(app, ["recipes", "nowhere"]).exit_code == 2
    assert CliRunner().invoke(app, ["recipes", "--whole"]).exit_code == 2


def test_files_of_a_text_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the package, in the working directory, or beside another recipe, each by its own prefix."""
    monkeypatch.chdir(tmp_path)
    bundled = "package:corpora/tatoeba-de-en/train.tsv.xz"
    (tmp_path / "recipes").mkdir()
    base = tmp_path / "recipes/base.yaml"
    base.write_text(f"data: {{train: [{{source: a.de, target: cwd:a.en}}, {{path: '{bundled}'}}]}}", encoding="utf-8")
    heir = tmp_path / "heir.yaml"
    heir.write_text("{extends: recipes/base.yaml, data: {validation: [{path: valid.tsv}]}}", encoding="utf-8")
    corpus = str(PACKAGE / "corpora/tatoeba-de-en/train.tsv.xz")
    root = str(tmp_path / "recipes")
    assert read_recipe(base)["data"] == {
        "root": root,
        "train": [{"source": "a.de", "target": str(tmp_path / "a.en")}, {"path": corpus}],
    }
    assert read_recipe(heir)["data"]["train"] == [
        {"source": f"{root}/a.de", "target": str(tmp_path / "a.en")},
        {"path": corpus},
    ]
    set_here = read_recipe(base, [f"data.train=[{{path: '{bundled}'}}]"])
    assert set_here["data"]["train"] == [{"path": corpus}]
    at_home = read_recipe(base, ["data.train=[{path: ~/a.tsv}]"])
    assert at_home["data"]["train"] == [{"path": str(Path.home() / "a.tsv")}]
