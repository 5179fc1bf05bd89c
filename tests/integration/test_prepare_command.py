"""`jointnmt prepare`: the store for `train`, the same by processes of this machine and by workers of Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.cluster.preparation import RayPool
from jointnmt.cluster.session import connected
from jointnmt.data.building import write_store
from jointnmt.data.store import build_store
from jointnmt.errors import DataError
from jointnmt.experiment import Experiment
from jointnmt.text.segmentation import Segmentation
from support.ray_processes import named
from support.runs import assert_same_runs
from support.tiny import tiny_recipe, write_corpus


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    path = tmp_path / "recipe.yaml"
    experiment = Experiment.parse(tiny_recipe(tmp_path, data__cache=str(tmp_path / "cache")), origin="test")
    path.write_text(yaml.safe_dump(experiment.plain()), encoding="utf-8")
    return path


def call(*arguments: object) -> Any:
    called = CliRunner().invoke(app, [str(each) for each in arguments])
    assert called.exit_code == 0, called.output
    return called


def test_a_prepared_training_segments_nothing_and_ends_with_the_same_weights(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("train", recipe, "--out", tmp_path / "whole", "--set", f"data.cache={tmp_path / 'other'}")
    call("prepare", recipe, "--out", tmp_path / "run", "--workers", 2)
    assert len(list((tmp_path / "cache" / "segmented").glob("*/store.json"))) == 2
    assert not (tmp_path / "run" / "model.safetensors").exists()
    monkeypatch.setattr("jointnmt.data.store.write_store", None)
    monkeypatch.setattr(Segmentation, "train", None)
    call("prepare", recipe, "--out", tmp_path / "run")
    call("train", recipe, "--out", tmp_path / "run")
    assert_same_runs(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("change", ["text", "configuration", "damage"])
def test_pieces_are_learnt_again_if_they_are_not_what_they_would_be(recipe: Path, tmp_path: Path, change: str) -> None:
    call("prepare", recipe, "--out", tmp_path / "run")
    settings = ["--set", "segmentation.min_frequency=9"] if change == "configuration" else []
    if change == "text":
        text = tmp_path / "train.de"
        text.write_text(text.read_text().replace("wort7", "mot"))
    if change == "damage":
        (tmp_path / "run" / "segmentation" / "joint.json").write_text("{}")
    for name in ("run", "new"):
        call("prepare", recipe, "--out", tmp_path / name, *settings)
    names = sorted(path.name for path in (tmp_path / "new" / "segmentation").iterdir())
    for name in names:
        now, new = ((tmp_path / run / "segmentation" / name).read_bytes() for run in ("run", "new"))
        assert now == new, name


def prepared(recipe: Path) -> tuple[Experiment, Segmentation]:
    """The recipe, and the segmentation learnt from its text."""
    run = recipe.parent / "run"
    call("prepare", recipe, "--out", run)
    return Experiment.load(recipe), Segmentation.load(run / "segmentation")


@pytest.mark.slow
def test_workers_of_ray_make_the_same_store_though_one_is_killed(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jointnmt.data.blocks.BLOCK_LINES", 7)
    experiment, segmentation = prepared(recipe)
    expected = build_store(experiment.data, segmentation).directory
    killed: list[psutil.Process] = []

    def kill_one(pairs: int) -> None:
        children = psutil.Process().children(recursive=True)
        workers = named(children, "ray::_work") or named(children, "ray::IDLE")  # between two blocks
        if not killed and workers:
            killed.append(workers[0])
            workers[0].kill()

    data = experiment.data.model_copy(update={"cache": tmp_path / "by-ray"})
    with connected(None):
        made = build_store(data, segmentation, progress=kill_one, pool=RayPool(2)).directory
    assert killed
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in made.iterdir()) == names and len(names) == 20
    for name in names:
        assert (made / name).read_bytes() == (expected / name).read_bytes(), name


@pytest.mark.slow
def test_a_bad_line_is_told_by_workers_of_ray_as_it_is_here(recipe: Path) -> None:
    experiment, segmentation = prepared(recipe)
    path = recipe.parent / "train.de"
    path.write_text(path.read_text().replace("\n", "\n\n", 1).removesuffix("\n").rpartition("\n")[0] + "\n")
    texts = [experiment.data.place(text) for text in experiment.data.train]
    with connected(None), pytest.raises(DataError, match=r"train\.de:2: empty source"):
        folder = recipe.parent / "store"
        write_store(folder, texts, experiment.data.filters, segmentation, "train", "", RayPool(1), lambda pairs: None)
    assert not folder.exists() and not list(recipe.parent.glob("*.partial"))


def test_the_address_of_no_cluster_is_refused(recipe: Path, tmp_path: Path) -> None:
    called = CliRunner().invoke(app, ["prepare", str(recipe), "--out", str(tmp_path / "run"), "--address", "nowhere"])
    assert called.exit_code == 2
    assert "is not an address of a cluster" in " ".join(called.output.split())
