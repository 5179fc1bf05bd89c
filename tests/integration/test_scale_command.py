"""`jointnmt scale` from end to end on small models of every family: training, reuse, resumption, refusals."""

from __future__ import annotations

import importlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.experiment import Experiment
from jointnmt.models import FAMILIES
from jointnmt.scaling.runs import RUNS
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.progress import NoDisplay
from support.tiny import tiny_recipe, write_corpus

SIZES = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 32, "dropout": 0.1}
DEPTHS = {
    "transformer": {"encoder_layers": 1, "decoder_layers": 1},
    "reformer-base": {"num_layers": 1},
    "reformer-fast": {"prenet_layers": 2, "num_layers": 1},
}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def write_recipe(folder: Path, family: str, **changes: Any) -> Path:
    model = {"family": family, **SIZES, **DEPTHS[family]}
    path = folder / f"{family}.yaml"
    recipe = tiny_recipe(folder, model=model, validation__bleu_every=0, **changes)
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaling")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="module", params=list(FAMILIES))
def scaled(request: pytest.FixtureRequest, folder: Path) -> tuple[list[object], Path, Result]:
    """The command, its directory and its result: three runs of three updates each."""
    recipe, out = write_recipe(folder, request.param), folder / f"scale-{request.param}"
    arguments = ["scale", recipe, "--out", out, "--updates", 3, "--json"]
    return arguments, out, call(*arguments)


def pretend(out: Path, **losses: float) -> None:
    """Replace the recorded cross-entropies of the finished runs."""
    for name, nll in losses.items():
        values = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        (out / f"{name}.json").write_text(json.dumps({**values, "nll": nll}), encoding="utf-8")


def ages(out: Path) -> dict[str, int]:
    """Times of modification of the runs' files."""
    return {str(path): path.stat().st_mtime_ns for name in RUNS for path in (out / name).rglob("*")}


def test_the_report_is_what_the_runs_have_logged(scaled: tuple[list[object], Path, Result]) -> None:
    _, out, result = scaled
    assert result.exit_code in (0, 2), result.stderr  # after three updates, either is possible
    report = json.loads(result.stdout)
    assert report == json.loads((out / "report.json").read_text(encoding="utf-8"))
    for name in RUNS:
        lines = (out / name / "log.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        best = min((one for one in records if one["event"] == "validation"), key=lambda one: one["nll"])
        run = report["runs"][name]
        assert (run["nll"], run["step"], run["updates"]) == (best["nll"], best["step"], 3)
        versions = json.loads((out / name / "versions.json").read_text(encoding="utf-8"))
        assert run["parameters"]["total"] == versions["parameters"]
    base, depth, width = (report["runs"][name] for name in RUNS)
    assert depth["layers"] == {key: layers + 1 for key, layers in base["layers"].items()}
    assert (width["layers"], width["ffn_dim"], width["width"]) == (base["layers"], 48, 3.0)
    assert report["gradient"] == {"depth": base["nll"] - depth["nll"], "width": base["nll"] - width["nll"]}
    assert (report["refused"] is None) == (result.exit_code == 0) == (out / "scaled.yaml").exists()


def test_finished_runs_are_reused_and_the_scaled_recipe_is_one(scaled: tuple[list[object], Path, Result]) -> None:
    arguments, out, _ = scaled
    pretend(out, base=2.0, depth=1.98, width=1.98)
    before = ages(out)
    result = call(*arguments)
    assert result.exit_code == 0, result.stderr
    assert ages(out) == before
    report = json.loads(result.stdout)
    base, found = report["runs"]["base"], report["scaled"]
    assert found["layers"] == {key: layers + found["added_layers"] for key, layers in base["layers"].items()}
    assert found["ffn_dim"] % 8 == 0
    assert found["parameters"]["rest"] / base["parameters"]["rest"] == report["parameter_ratio"]["rest"]
    assert 1.5 < report["parameter_ratio"]["predicted"] < 2.5
    assert report["cost"]["trainings"] == 3
    recipe = Experiment.load(out / "scaled.yaml")
    assert recipe.training.max_updates == 12  # the recipe's own, as --updates is for the three runs
    assert recipe.model.ffn_dim == found["ffn_dim"]
    told = call("info", out / "scaled.yaml", "--source-vocabulary", 30, "--target-vocabulary", 30)
    assert told.exit_code == 0, told.stderr
    if recipe.model.family == "transformer":
        trained = call("train", out / "scaled.yaml", "--out", out / "fitted", "--set", "training.max_updates=1")
        assert trained.exit_code == 0, trained.stderr

    table = call(*arguments[:-1])
    assert table.exit_code == 0, table.stderr
    assert "cross-entropy" in table.stdout and "predicted (Eq. 8)" in table.stdout and "grid search" in table.stdout


def test_a_gradient_that_says_worse_ends_with_an_explanation(scaled: tuple[list[object], Path, Result]) -> None:
    arguments, out, _ = scaled
    (out / "scaled.yaml").write_text("of an earlier call", encoding="utf-8")
    pretend(out, base=2.0, depth=2.1, width=2.0)
    result = call(*arguments)
    assert result.exit_code == 2
    assert "Larger is worse here" in result.stderr and "Traceback" not in result.stderr
    assert not (out / "scaled.yaml").exists()
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert "Larger is worse here" in report["refused"] and report["scaled"] is None

    pretend(out, base=2.0, depth=2.1, width=1.9)
    result = call(*arguments, "--ratio", 9)
    assert result.exit_code == 2 and "The ratio 9 cannot be reached" in result.stderr


def test_one_run_at_a_time_interrupted_and_gone_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--only` trains one run; after Ctrl-C the same command continues, to the weights of an uninterrupted run."""

    class Interrupt(NoDisplay):
        def step(self, *_: object) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    recipe, out = write_recipe(folder, "transformer"), folder / "only"
    arguments = ["scale", recipe, "--out", out, "--updates", 3]
    command = importlib.import_module("jointnmt.cli.scale")
    with monkeypatch.context() as patch:
        patch.setattr(command, "choose_display", lambda _: Interrupt())
        result = call(*arguments, "--only", "depth")
    assert result.exit_code == 130 and "The same command resumes" in result.stderr
    assert not (out / "depth.json").exists()
    result = call(*arguments, "--only", "depth")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert sorted(path.name for path in out.iterdir()) == ["depth", "depth.json"]
    assert TrainingDirectory(out / "depth").holds_result_of([3])

    with TrainingDirectory(out / "base").lock():
        result = call(*arguments, "--only", "base")
    assert result.exit_code == 2 and "another training is running" in result.stderr

    # The machine that does the rest needs only the result of the finished run.
    (out / "depth").rename(folder / "elsewhere")
    result = call(*arguments)
    assert result.exit_code in (0, 2), result.stderr
    assert not (out / "depth").exists() and (out / "report.json").exists()
    whole = folder / "scale-transformer" / "depth"
    if whole.exists():  # the other tests have run
        assert (folder / "elsewhere/model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_longer_runs_go_on_and_shorter_ones_are_refused(folder: Path) -> None:
    recipe, out = write_recipe(folder, "reformer-base"), folder / "longer"
    arguments = ["scale", recipe, "--out", out, "--only", "base", "--updates"]
    assert call(*arguments, 2).exit_code == 0
    assert call(*arguments, 3).exit_code == 0
    assert json.loads((out / "base.json").read_text(encoding="utf-8"))["updates"] == 3
    result = call(*arguments, 2)
    assert result.exit_code == 2 and "has been trained for 3 updates, but 2 are requested" in result.stderr
    result = call(*arguments, 3, "--set", "model.dropout=0.2")
    assert result.exit_code == 2 and "model.dropout: 0.1 -> 0.2" in result.stderr
    measured = json.loads((out / "base.json").read_text(encoding="utf-8"))
    del measured["experiment"]["training"]["r_drop"]  # as by a version without this key
    (out / "base.json").write_text(json.dumps(measured), encoding="utf-8")
    assert call(*arguments, 3).exit_code == 0
    for damaged, why in (
        ("{", "line 1"),
        ("[1]", "no JSON object"),
        ('{"nll": 1}', "updates: is missing"),
    ):
        (out / "base.json").write_text(damaged, encoding="utf-8")
        result = call(*arguments, 3)
        assert result.exit_code == 2 and "Delete it: the run beside it is then read again" in result.stderr
        assert why in result.stderr


def test_a_finished_run_is_not_reused_with_other_text(folder: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    arguments = ["scale", write_recipe(tmp_path, "reformer-base"), "--out", tmp_path / "out", "--updates", 2, "--only"]
    assert call(*arguments, "base").exit_code == 0
    for name in ("valid", "train"):
        text = (tmp_path / f"{name}.en").read_text(encoding="utf-8")
        (tmp_path / f"{name}.en").write_text(text.replace("word1", "word2"), encoding="utf-8")
        result = call(*arguments, "base")
        which = {"valid": "validation"}.get(name, name)
        assert result.exit_code == 3 and f"the text of data.{which} has changed" in result.stderr
        (tmp_path / f"{name}.en").unlink()
        assert call(*arguments, "base").exit_code == 0  # a missing run is not a different one
        (tmp_path / f"{name}.en").write_text(text, encoding="utf-8")
    assert call(*arguments, "base").exit_code == 0


def test_all_runs_train_in_the_precision_of_the_base(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would measure for itself, and the fastest precision may depend on the size of the model."""
    chosen = iter(("bfloat16", "float32", "float32"))
    monkeypatch.setattr(
        importlib.import_module("jointnmt.training.run"), "choose_training_precision", lambda *_: next(chosen)
    )
    recipe, out = write_recipe(folder, "transformer", training__precision="auto"), folder / "precisions"
    arguments = ["scale", recipe, "--out", out, "--updates", 2]

    result = call(*arguments, "--only", "base")
    assert result.exit_code == 0, result.stderr
    assert call(*arguments).exit_code in (0, 2)
    trained = {name: TrainingDirectory(out / name).read_experiment().training.precision for name in RUNS}
    assert trained == dict.fromkeys(RUNS, "bfloat16")
    before = ages(out)
    assert call(*arguments).exit_code in (0, 2)
    assert ages(out) == before

    alone = ["scale", recipe, "--out", folder / "alone", "--updates", 2, "--only", "width"]
    assert call(*alone).exit_code == 0
    (folder / "alone" / "width.json").replace(out / "width.json")
    result = call(*arguments)
    assert result.exit_code == 2 and "not trained in the same precision" in result.stderr


def test_runs_of_a_schedule_that_ends_have_one_length(folder: Path) -> None:
    schedule = {"warmup_steps": 4, "zero_at": 12}
    recipe, out = write_recipe(folder, "transformer", training__schedule=schedule), folder / "ends"
    arguments = ["scale", recipe, "--out", out, "--only", "base", "--updates"]
    assert call(*arguments, 3).exit_code == 0
    result = call(*arguments, 6)
    assert result.exit_code == 2 and "The schedule ends with the run" in result.stderr


def test_what_cannot_be_scaled_is_refused_before_training(folder: Path, tmp_path: Path) -> None:
    recipe = write_recipe(folder, "reformer-fast")
    refused = {
        "data.validation names no text": ["--out", tmp_path / "x", "--set", "data.validation=[]"],
        "--ratio 1: must be a number above 1": ["--out", tmp_path / "x", "--ratio", 1],
        "is itself a run": ["--out", tmp_path / "run"],
    }
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.yaml").touch()
    for message, arguments in refused.items():
        result = call("scale", recipe, *arguments)
        assert result.exit_code == 2 and message in result.stderr, result.output
    assert not (tmp_path / "x").exists()
