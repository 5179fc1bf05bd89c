"""Messages of a training before its first update and after its last; and patience does not count the warm-up."""

from __future__ import annotations

import logging
import math
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jointnmt.data.store import build_store
from jointnmt.experiment import Experiment
from jointnmt.runs.log import RunLog
from jointnmt.runs.selection import ScoredCheckpoint, Selection
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.special import eos_id
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.outlook import Outlook
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.training.verdict import Verdict, judge, unigram_perplexity
from support.runs import At, assert_same_runs
from support.tiny import ListStore, tiny_recipe, write_corpus
from support.tiny_run import experiment, write_run


def outlook(**changes: Any) -> Outlook:
    sizes = {"epoch_updates": 14, "pairs": 3000, "target_tokens": 30_000, "parameters": 100_000, "vocabulary": 1000}
    settings = {name: changes.pop(name) for name in ("training", "validation", "segmentation") if name in changes}
    return Outlook(experiment(**settings), **{**sizes, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"training": {"max_epochs": 15, "schedule": {"warmup_steps": 71}}},
            ["warms up for 71", "210", "to 21, a tenth"],
        ),
        ({"training": {"max_updates": 99, "schedule": {"warmup_steps": 34}}}, ["warms up for 34", "99 are planned"]),
        ({"training": {"schedule": {"warmup_steps": 5, "zero_at": 14}}}, ["14 are planned"]),
        (
            {"training": {"max_updates": 90, "schedule": {"warmup_steps": 1, "zero_at": 80}}},
            ["max_updates is 90", "ends after 80", "zero_at, too"],
        ),
        (
            {"training": {"max_updates": 70, "schedule": {"warmup_steps": 1, "zero_at": 80}}},
            ["ends after 70", "now 80, to 70"],
        ),
        (
            {"training": {"max_epochs": 5, "schedule": {"warmup_steps": 1, "zero_at": 80}}},
            ["ends after 70", "now 80, to 70"],
        ),
        (
            {"validation": {"patience": 3}, "training": {"schedule": {"warmup_steps": 43}}},
            ["patience is 3", "every 14"],
        ),
        (
            {"validation": {"patience": 3, "every_updates": 10}, "training": {"schedule": {"warmup_steps": 31}}},
            ["every 10"],
        ),
        ({"parameters": 600_001}, ["600,001 parameters, 20 for each of the 30,000", "3,000 sentence pairs"]),
        (
            {"vocabulary": 3751, "parameters": 1},
            ["3,751 pieces", "8.0 times", "segmentation.target_vocabulary_size to 1,500"],
        ),
        (
            {"vocabulary": 3751, "parameters": 1, "segmentation": {"kind": "bpe", "joint": True}},
            ["segmentation.vocabulary_size to 1,500"],
        ),
        (
            {"vocabulary": 3751, "parameters": 1, "segmentation": {"joint": "merges", "num_merges": 3000}},
            ["segmentation.num_merges to 1,500"],
        ),
        ({"vocabulary": 3851, "target_tokens": 30_800, "parameters": 1}, ["size to 1,500 or so"]),
        (
            {"vocabulary": 400, "target_tokens": 3000, "parameters": 1},
            ["400 pieces", "7.5 times each in the training text. Use more text"],
        ),
    ],
)
def test_warns_of_what_does_not_fit(changes: dict[str, Any], words: list[str]) -> None:
    (warning,) = outlook(**{"training": {"schedule": {"warmup_steps": 1}}, **changes}).warnings()
    assert all(word in warning for word in words), warning


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"max_epochs": 15, "schedule": {"warmup_steps": 70}}},
        {"validation": {"patience": 3}, "training": {"schedule": {"warmup_steps": 42}}},
        {"parameters": 600_000},
        {"vocabulary": 3750},
        {"training": {"schedule": {"warmup_steps": 10**6}}},
        {"training": {"max_updates": 80, "schedule": {"warmup_steps": 1, "zero_at": 80}}},
    ],
)
def test_says_nothing_of_what_fits(changes: dict[str, Any]) -> None:
    assert outlook(**{"training": {"schedule": {"warmup_steps": 1}}, **changes}).warnings() == []


def test_much_dropout_allows_more_parameters() -> None:
    each = outlook(parameters=2_400_000, training={"schedule": {"warmup_steps": 1}})
    model = each.experiment.model.model_copy(update={"dropout": 0.3})
    each = replace(each, experiment=each.experiment.model_copy(update={"model": model}))
    assert each.warnings() == []
    (warning,) = replace(each, parameters=2_400_001).warnings()
    assert "it will overfit" in warning


def test_validations_of_the_warm_up_are_not_stale() -> None:
    selection = Selection().add(ScoredCheckpoint(1, 5.0), 2)
    for step in (2, 3):
        selection = selection.add(ScoredCheckpoint(step, 1.0), 2, counts=False)
    assert selection.stale == 0
    assert selection.add(ScoredCheckpoint(4, 1.0), 2).stale == 1


def never_better(folder: Path) -> Experiment:
    """A training that a huge rate makes worse after its first validation, with a warm-up of seven updates."""
    changes: dict[str, Any] = {"training__schedule": {"warmup_steps": 7, "initial_rate": 2.0, "peak_rate": 2.0}}
    changes |= {"training__max_updates": 30, "validation": {"every_updates": 1, "bleu_every": 0, "patience": 2}}
    return Experiment.parse(tiny_recipe(folder, **changes), origin="test")


@pytest.mark.slow
def test_patience_begins_after_the_warm_up_and_so_it_does_when_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_corpus(tmp_path)
    settings = never_better(tmp_path)
    with caplog.at_level(logging.INFO, "jointnmt"):
        train(settings, tmp_path / "whole", NoDisplay())
    assert "training ends after update 9: no better perplexity in 2 validations" in caplog.text
    for stop in (4, 8):
        with pytest.raises(ValueError, match="cut"):
            train(settings, tmp_path / "cut", At(stop, _raise))
    train(settings, tmp_path / "cut", NoDisplay())
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


def _raise() -> None:
    raise ValueError("cut")


def test_unigram_perplexity_is_the_cross_entropy_of_frequencies(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    settings = Experiment.parse(tiny_recipe(tmp_path), origin="test")
    train(settings, tmp_path / "run", NoDisplay())
    segmentation = Segmentation.load(tmp_path / "run" / "segmentation")
    size = segmentation.target.vocabulary_size
    stores = [build_store(settings.data, segmentation, which) for which in ("train", "validation")]  # type: ignore[arg-type]
    known, asked = (
        [each for _, target in store.pairs(range(len(store))) for each in (*target, eos_id)] for store in stores
    )
    chances = [(known.count(each) + 1) / (len(known) + size) for each in asked]
    expected = math.exp(-np.log(chances).mean())
    assert unigram_perplexity(stores[0], stores[1], size) == pytest.approx(expected)


def judged(run: Path, *records: dict[str, Any], **training: Any) -> Verdict:
    """The verdict on weights after update 1 by these records of validations, all with little perplexity."""
    directory = TrainingDirectory(write_run(run, training=training))
    directory.validation.mkdir()
    with closing(RunLog(directory.log, None, 0)) as log:
        for record in records:
            values = {"event": "validation", "bleu": None, "translations": ["the dog"], **record}
            directory.write_translations(values["step"], values["event"], values.pop("translations"))
            log.write(**values, perplexity=1.0)
    store: Any = ListStore()
    store.target_token_counts = np.ones
    return judge(directory, store, store, 9)


@pytest.mark.parametrize("other", [{"event": "average", "steps": [1, 2]}, {}])
def test_only_the_translations_of_the_kept_weights_are_judged(tmp_path: Path, other: dict[str, Any]) -> None:
    """Those of a rejected average, or of later and worse weights, say nothing about them."""
    useless = {"bleu": 0.1, "translations": [""]}
    later = {"step": 2, **other, **useless}
    assert judged(tmp_path / "good", {"step": 1, "bleu": 20.0}, later).reasons == ()
    assert judged(tmp_path / "untranslated", {"step": 1}, later).reasons == ()
    bad = judged(tmp_path / "bad", {"step": 1, **useless}, {"step": 2, **other, "bleu": 20.0})
    assert bad.reasons == ("its BLEU on the validation text is 0.10", "1 of its 1 translations are empty")


def test_the_advice_says_how_long_the_warm_up_was(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "run", {"step": 1}, {"step": 29}, schedule={"warmup_steps": 10})
    assert verdict.advice.startswith("the warm-up of 10 updates is more than 1/3 of the 29 updates: set ")


@pytest.mark.slow
def test_a_model_that_has_learnt_nothing_says_so_and_one_that_has_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_corpus(tmp_path)
    for name, rate in (("bad", 1e-9), ("good", 0.03)):
        caplog.clear()
        schedule = {"warmup_steps": 30, "initial_rate": 0, "peak_rate": rate}
        recipe = tiny_recipe(tmp_path, training__schedule=schedule, training__max_updates=80)
        recipe["validation"] = {"every_updates": 80, "bleu_every": 1}
        with caplog.at_level(logging.INFO, "jointnmt"):
            train(Experiment.parse(recipe, origin="test"), tmp_path / name, NoDisplay())
        last = caplog.records[-1]
        assert (last.levelname, "translate with" in last.message) == (
            ("WARNING", False) if name == "bad" else ("INFO", True)
        ), last.message
        if name == "bad":
            for words in ("learnt next to nothing", "its perplexity", "how frequent each piece is", "warm-up of 30"):
                assert words in last.message
    shutil.rmtree(tmp_path / "good" / "validation")  # read again: it needs nothing that may have been deleted
    train(Experiment.parse(recipe, origin="test"), tmp_path / "good", NoDisplay())
