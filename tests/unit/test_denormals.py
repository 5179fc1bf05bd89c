"""Trainings flush denormals to zero, as they make them three times slower."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jointnmt.experiment import Experiment
from jointnmt.training.denormals import are_zero, denormals_as_zero
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.training.trainer import Trainer
from support.tiny import tiny_recipe, write_corpus

pytestmark = pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="this processor always computes with denormals"
)


def test_context_holds_in_its_threads_and_ends() -> None:
    seen: list[bool] = []
    with denormals_as_zero():
        thread = threading.Thread(target=lambda: seen.append(are_zero()))
        thread.start()
        thread.join()
        seen.append(are_zero())
    assert seen == [True, True]
    assert not are_zero()


def test_mode_of_before_is_kept() -> None:
    torch.set_flush_denormal(True)
    try:
        with denormals_as_zero():
            pass
        assert are_zero()
    finally:
        torch.set_flush_denormal(False)


def test_training_computes_in_this_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    step = Trainer.steps

    def steps(self: Trainer, *arguments: Any) -> Iterator[Any]:
        for each in step(self, *arguments):
            seen.append(are_zero())
            yield each

    monkeypatch.setattr(Trainer, "steps", steps)
    write_corpus(tmp_path)
    train(Experiment.parse(tiny_recipe(tmp_path), origin="test"), tmp_path / "run", NoDisplay())
    assert seen and all(seen)
    assert not are_zero()
