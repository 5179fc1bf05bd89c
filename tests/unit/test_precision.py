"""`training.precision: auto`: measuring, choice, and that a RUN keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.ops.autocast import autocast_to
from jointnmt.runs.directory import RunDirectory
from jointnmt.training import speed
from jointnmt.training.precision import PRECISIONS, faster_precision
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from support.kernels import needs_kernels
from support.runs import At, assert_same_runs
from support.tiny import tiny_recipe, tiny_trainer, write_corpus


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({"float32": 100.0, "bfloat16": 106.0}, "bfloat16"),
        ({"float32": 100.0, "bfloat16": 104.0}, "float32"),
        ({"float32": 100.0, "bfloat16": 1.0}, "float32"),
        ({"bfloat16": 1.0}, "bfloat16"),
        ({"float32": 1.0}, "float32"),
    ],
)
def test_bfloat16_is_taken_where_it_is_worth_it(rates: dict[str, float], chosen: str) -> None:
    assert faster_precision(rates) == chosen


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_products_have_the_type_of_the_precision(precision: str, dtype: torch.dtype) -> None:
    with autocast_to(precision, torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is dtype


def test_each_precision_is_measured_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    trainers = {name: tiny_trainer(precision=name) for name in PRECISIONS}
    seen: list[str] = []
    for name, trainer in trainers.items():
        step = trainer._step
        monkeypatch.setattr(trainer, "_step", lambda *given, name=name, step=step: seen.append(name) or step(*given))
    rates = speed.measure_rates(trainers, seconds=0.0)
    assert rates.keys() == trainers.keys() and min(rates.values()) > 0
    first = ["float32"] * speed.FIRST_UPDATES + ["bfloat16"] * speed.FIRST_UPDATES
    assert seen == first + ["float32", "bfloat16"] * speed.ROUNDS


def recipe(folder: Path, precision: str) -> Experiment:
    write_corpus(folder)
    return Experiment.parse(tiny_recipe(folder, training__max_updates=6, training__precision=precision), "test")


def measured(monkeypatch: pytest.MonkeyPatch, **rates: float) -> None:
    """Replace the measured rates by these, after the updates of measuring."""
    measure = speed.measure_rates
    monkeypatch.setattr(speed, "measure_rates", lambda trainers, seconds: measure(trainers, 0.0) and rates)


@pytest.mark.parametrize("chosen", ["float32", "bfloat16"])
def test_a_training_is_that_of_the_chosen_precision(
    chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Equal to the bit: measuring has no effect."""
    caplog.set_level("INFO")
    train(recipe(tmp_path, chosen), tmp_path / "explicit", NoDisplay())
    measured(monkeypatch, **{"float32": 2000.0, "bfloat16": 1000.0, chosen: 3000.0})
    train(recipe(tmp_path, "auto"), tmp_path / "auto", NoDisplay())
    assert_same_runs(tmp_path / "explicit", tmp_path / "auto")
    assert RunDirectory(tmp_path / "auto").read_experiment().training.precision == chosen
    ratio = "1.50" if chosen == "bfloat16" else "0.33"
    assert f"precision: {chosen}: in bfloat16 the first updates are {ratio} times as fast" in caplog.text


def test_what_was_chosen_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = recipe(tmp_path, "auto")
    measured(monkeypatch, float32=1.0, bfloat16=2.0)
    train(experiment, tmp_path / "whole", NoDisplay())
    with pytest.raises(ZeroDivisionError):
        train(experiment, tmp_path / "cut", At(4, lambda: 1 / 0))
    monkeypatch.setattr(speed, "measure_rates", lambda *_: pytest.fail("it is measured once"))
    train(experiment, tmp_path / "cut", NoDisplay())
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")
    with pytest.raises(ConfigurationError, match="precision"):
        train(recipe(tmp_path, "float32"), tmp_path / "cut", NoDisplay())


@needs_kernels
@pytest.mark.parametrize(
    ("precision", "ffn_dim", "warned"),
    [("bfloat16", 16, False), ("bfloat16", 24, True), ("float16", 16, True), ("float32", 24, False)],
)
def test_a_named_precision_without_kernels_is_trained_in_with_a_warning(
    precision: str, ffn_dim: int, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {"training__max_updates": 1, "training__precision": precision, "model__ffn_dim": ffn_dim}
    write_corpus(tmp_path)
    train(Experiment.parse(tiny_recipe(tmp_path, **changes), "test"), tmp_path / "run", NoDisplay())
    assert (f"precision {precision}: the CPU kernels do not compute" in caplog.text) is warned
