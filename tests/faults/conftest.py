"""Targets of all faults: a small parallel text, trainings on it, and commands in processes of their own."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from jointnmt.experiment import Experiment
from jointnmt.training.loop import TrainingInterruptedError
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.translator import Translator
from support.runs import At
from support.tiny import tiny_recipe, write_corpus

TEXT = "wort1 wort2 wort3\nwort4 wort7 .\n\nwort19 wort0 wort0\n"
SHORT = {"data__cache": None, "training__max_updates": 6, "validation": {"every_updates": 2, "bleu_every": 0}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with training and validation text."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, two recipes, and for each an interrupted RUN (`half-...`) and the completed one (`whole-...`).

    Also `cache`, held-out text (`test`), and `shared`, a folder of `save_pretrained`.
    """
    folder = tmp_path_factory.mktemp("trained")
    write_corpus(folder)
    (folder / "text").write_text(TEXT, encoding="utf-8")
    for side, word in (("de", "wort"), ("en", "word")):
        lines = (f"{word}{number} {word}{19 - number} {word}1 {word}2 {word}3\n" for number in range(8))
        (folder / f"test.{side}").write_text("".join(lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JOINTNMT_CACHE", str(folder / "cache"))
        for name, seed in (("recipe", 1), ("other", 5)):
            experiment = Experiment.parse(tiny_recipe(folder, **SHORT, seed=seed), origin="test")
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(experiment.plain()), encoding="utf-8")
            half, whole = folder / f"half-{name}", folder / f"whole-{name}"
            with pytest.raises(TrainingInterruptedError):
                train(experiment, half, At(3, lambda: os.kill(os.getpid(), signal.SIGINT)))
            shutil.copytree(half, whole)
            train(experiment, whole, NoDisplay())
    Translator.load(folder / "whole-recipe", "cpu").save_pretrained(folder / "shared")
    return folder
