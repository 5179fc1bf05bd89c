"""`training.from`: weights, pieces and configuration of a trained model; contradictions; resumption."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import jointnmt
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.weights import read_weights
from jointnmt.shipped import MODELS, shipped_models
from jointnmt.text.segmentation import hash_files
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.translator import Translator
from support.runs import At, assert_same_runs
from support.tiny import tiny_recipe, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning")
    write_corpus(folder)
    experiment = Experiment.parse(tiny_recipe(folder, training__max_updates=3), origin="test")
    train(experiment, folder / "base", NoDisplay())
    train(experiment.model_copy(update={"seed": 2}), folder / "sibling", NoDisplay())
    return folder


def recipe(corpus: Path, **changes: Any) -> Path:
    """A recipe that begins with `base`, without model and segmentation unless `changes` set them."""
    values = tiny_recipe(corpus, training__max_updates=6, training__schedule={"warmup_steps": 2, "peak_rate": 0.005})
    values["training"] |= {"from": "base", "precision": "float32"}
    values = {**{key: value for key, value in values.items() if key not in ("model", "segmentation")}, **changes}
    path = corpus / "tuned.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def test_dropout_is_that_of_fine_tuning_unless_said(corpus: Path, tmp_path: Path) -> None:
    """The model may have been trained without dropout, on much text."""
    bare, base = tmp_path / "bare.yaml", tmp_path / "base"
    shutil.copytree(corpus / "base", base)
    values = yaml.safe_load((base / "experiment.yaml").read_text())
    values["model"]["dropout"] = 0.0
    (base / "experiment.yaml").write_text(yaml.safe_dump(values))
    bare.write_text(f"name: x\ndata: {{train: [{{path: a.tsv}}]}}\ntraining: {{from: {base}}}\n")
    assert Experiment.load(bare).model.dropout == 0.1
    assert Experiment.load(bare, ["model.dropout=0.25"]).model.dropout == 0.25
    assert Experiment.load(bare).model.embed_dim == 16
    assert Experiment.load(bare, ["training.r_drop=5"]).training.r_drop == 5  # this training has dropout


def test_a_model_of_a_family_that_nobody_has_is_refused_by_name(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "base", tmp_path / "base")
    file = tmp_path / "base" / "experiment.yaml"
    file.write_text(file.read_text().replace("family: transformer", "family: unheard-of"))
    for settings in ([], ["model.family=reformer-fast"]):
        with pytest.raises(ConfigurationError, match="families of other packages need these installed"):
            Experiment.load(recipe(corpus), [f"training.from={tmp_path / 'base'}", *settings])


def test_of_an_inherited_model_only_rates_of_dropout_stay(corpus: Path) -> None:
    parent = corpus / "parent.yaml"
    parent.write_text(
        "extends: package:tatoeba/de-en-reformer-fast\nmodel: {shared_dropout: false, hidden_dropout: 0.25}\n"
    )
    model = Experiment.load(recipe(corpus, extends="parent.yaml")).model
    assert (model.family, model.hidden_dropout, model.dropout) == ("transformer", 0.25, 0.1)


def test_it_begins_with_the_weights_and_pieces_of_the_model(corpus: Path, tmp_path: Path) -> None:
    """With a rate of zero, it also ends with them."""
    still = ["training.schedule={initial_rate: 0, peak_rate: 1.0e-30, warmup_steps: 1}", "training.average_best=1"]
    for name, changes in (("base", []), ("shared", [f"training.from={tmp_path / 'of-base'}"])):
        if name == "shared":
            Translator.load(corpus / "base").save_pretrained(tmp_path / "of-base")
        experiment = Experiment.load(recipe(corpus), [*still, *changes])
        assert experiment.model.embed_dim == 16 and experiment.segmentation.kind == "word"
        train(experiment, tmp_path / name, NoDisplay())
        before, after = (read_weights(run / "model.safetensors") for run in (corpus / "base", tmp_path / name))
        assert all(torch.equal(after[key], tensor) for key, tensor in before.items())
        assert (tmp_path / name / "segmentation/joint.json").read_bytes() == (
            corpus / "base/segmentation/joint.json"
        ).read_bytes()
        assert Translator.load(tmp_path / name).translate(["wort1 wort2"])[0]
    assert hash_files(tmp_path / "base/segmentation") == hash_files(corpus / "base/segmentation")


@pytest.mark.slow
def test_it_resumes_exactly_even_if_the_model_has_gone(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "base", tmp_path / "gone")
    experiment = Experiment.load(recipe(corpus), [f"training.from={tmp_path / 'gone'}"])
    train(experiment, tmp_path / "whole", NoDisplay())
    with pytest.raises(ZeroDivisionError):
        train(experiment, tmp_path / "cut", At(4, lambda: 1 / 0))
    shutil.rmtree(tmp_path / "gone")
    shutil.copytree(tmp_path / "cut", tmp_path / "damaged")
    last = RunDirectory(tmp_path / "damaged").states.last
    before, key, after = last.read_bytes().partition(b'\\"from\\": \\"')  # as in the header of the weights
    last.write_bytes(before + key + b"x" + after[1:])
    train(Experiment.load(tmp_path / "damaged" / "experiment.yaml"), tmp_path / "damaged", NoDisplay())
    assert_same_runs(tmp_path / "whole", tmp_path / "damaged")
    train(Experiment.load(tmp_path / "cut" / "experiment.yaml"), tmp_path / "cut", NoDisplay())
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")
    with pytest.raises(ConfigurationError, match="gone: is not a trained model"):
        train(Experiment.load(tmp_path / "cut" / "experiment.yaml"), tmp_path / "new", NoDisplay())
    Translator.load(tmp_path / "cut").save_pretrained(tmp_path / "shared")
    assert str(tmp_path) not in (tmp_path / "shared" / "experiment.yaml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_does_not_resume_with_another_model_to_begin_with(corpus: Path, tmp_path: Path) -> None:
    path = recipe(corpus)
    train(Experiment.load(path), tmp_path / "run", NoDisplay())
    longer = ["training.max_updates=9"]
    with pytest.raises(ModelError, match="another training: from: "):
        train(Experiment.load(path, [*longer, f"training.from={corpus / 'sibling'}"]), tmp_path / "run", NoDisplay())
    shutil.copytree(corpus / "base", tmp_path / "moved")
    train(Experiment.load(path, [*longer, f"training.from={tmp_path / 'moved'}"]), tmp_path / "run", NoDisplay())


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("model.embed_dim=32", "model.embed_dim: 16 -> 32"),
        ("model.family=reformer-fast", "model.family: transformer -> reformer-fast"),
        ("segmentation.vocabulary_size=20", "segmentation.vocabulary_size: 10000 -> 20"),
        ("data.target_language=fr", "data.target_language: en -> fr"),
    ],
)
def test_what_contradicts_the_model_is_an_error(corpus: Path, setting: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"does not fit the model of training.from, .+{key}"):
        Experiment.load(recipe(corpus), [setting])


def test_what_contradicts_the_model_is_an_error_of_values_and_experiments_too(corpus: Path, tmp_path: Path) -> None:
    """A Transformer with four heads has weights of the same shapes as with two, but computes something else."""
    values = Experiment.load(recipe(corpus)).plain()
    values["model"]["num_heads"] = 4
    for given in (values, Experiment.parse(values, "test")):
        with pytest.raises(ConfigurationError, match=r"does not fit the model of training\.from.+num_heads: 2 -> 4"):
            jointnmt.train(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_setting_names_a_model_to_begin_with_as_a_recipe_does(corpus: Path, tmp_path: Path) -> None:
    """For a recipe that is completed, and for one that inherits a model; its own settings stay, and are checked."""
    base, short, longer = f"training.from={corpus / 'base'}", tmp_path / "short.yaml", tmp_path / "longer.yaml"
    values = {"name": "x", "data": {"train": [{"path": "a.tsv"}]}}
    for path, changes in ((short, {}), (longer, {"extends": "package:tatoeba/de-en-reformer-fast"})):
        path.write_text(yaml.safe_dump({**values, **changes}))
        (tmp_path / "said.yaml").write_text(
            yaml.safe_dump({**values, **changes, "training": {"from": str(corpus / "base")}})
        )
        assert Experiment.load(path, [base]) == Experiment.load(tmp_path / "said.yaml")
    assert Experiment.load(short, [base]).training.schedule.peak_rate == 0.001  # of fine-tuning
    assert Experiment.load(short, [base, "model.dropout=0.25"]).model.dropout == 0.25
    short.write_text(yaml.safe_dump({**values, "model": {"embed_dim": 32}}))
    with pytest.raises(ConfigurationError, match=r"model\.embed_dim: 16 -> 32"):
        Experiment.load(short, [base])


def test_what_weights_do_not_depend_on_may_differ(corpus: Path) -> None:
    experiment = Experiment.load(recipe(corpus, model={"dropout": 0.4, "max_length": 50}))
    assert (experiment.model.dropout, experiment.model.max_length, experiment.model.embed_dim) == (0.4, 50, 16)


def test_inherited_models_give_way_and_what_is_no_model_is_an_error(corpus: Path) -> None:
    assert Experiment.load(recipe(corpus, extends="package:tatoeba/de-en-reformer-fast")).model.family == "transformer"
    with pytest.raises(ConfigurationError, match="is not a trained model for training"):
        Experiment.load(recipe(corpus), [f"training.from={corpus}"])


def test_a_model_of_the_package_is_named_as_everywhere(corpus: Path) -> None:
    name = shipped_models()[0]
    path = recipe(corpus)
    begun = Experiment.load(path, [f"training.from=package:{name}"])
    assert begun.training.start == MODELS / name and begun.model.embed_dim == 128
    path.write_text(path.read_text().replace("from: base", f"from: package:{name}"), encoding="utf-8")
    assert Experiment.load(path) == begun
    with pytest.raises(ConfigurationError, match=f"package:{name}"):
        Experiment.load(path, ["training.from=package:tatoeba-xx"])
