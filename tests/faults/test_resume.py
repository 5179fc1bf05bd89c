"""A training that is stopped, killed or damaged, and resumed: the same weights as without."""

from __future__ import annotations

import json
import logging
import math
import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jointnmt.errors import ConfigurationError, DataError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.report.curves import read_learning_curves
from jointnmt.runs import checkpoint
from jointnmt.runs.averaging import choose_checkpoints
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.loop import TrainingInterruptedError
from jointnmt.training.progress import NoDisplay
from jointnmt.training.report import StepReport
from jointnmt.training.run import prepare_data, train
from jointnmt.training.validation import Validation
from support.runs import At, assert_same_runs, log_records
from support.tiny import tiny_recipe, write_corpus


def experiment(folder: Path, **changes: Any) -> Experiment:
    return Experiment.parse(tiny_recipe(folder, **changes), origin="test")


@pytest.fixture(scope="module")
def whole(corpus: Path) -> Path:
    """An uninterrupted run."""
    train(experiment(corpus), corpus / "whole", NoDisplay())
    return corpus / "whole"


def test_a_run_holds_what_translating_needs(whole: Path, corpus: Path) -> None:
    expected = {"experiment.yaml", "segmentation", "model.safetensors", "checkpoints", "log.jsonl", "versions.json"}
    assert expected <= {path.name for path in whole.iterdir()}
    assert Experiment.load(whole / "experiment.yaml") == experiment(corpus)
    versions = json.loads((whole / "versions.json").read_text(encoding="utf-8"))
    assert versions["seed"] == experiment(corpus).seed
    assert {"torch", "jointnmt", "python"} <= versions["packages"].keys()
    records = log_records(whole)
    assert [record["step"] for record in records if record["event"] == "train"] == [2, 3, 4, 6, 8, 9, 10, 12]
    assert [record["step"] for record in records if record["event"] == "validation"] == [3, 6, 9, 12]
    assert [record["bleu"] is None for record in records if record["event"] == "validation"] == [True, False] * 2
    assert records[-1]["event"] == "average"
    assert len(records[-1]["steps"]) == 2


def test_losses_fall(whole: Path) -> None:
    losses = [record["loss"] for record in log_records(whole) if record["event"] == "train"]
    assert losses[-1] < losses[0] - 0.2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 6, 7])
def test_a_signal_saves_and_the_same_command_goes_on(
    whole: Path, corpus: Path, tmp_path: Path, number: signal.Signals, step: int
) -> None:
    """Signals after an update within an epoch, and after one with a due validation, which then waits."""
    run = tmp_path / "run"
    settings, last = {"training__checkpoint_every": 1000}, 6 if step == 6 else step + 1
    with pytest.raises(TrainingInterruptedError, match=f"after update {last}, saved") as caught:
        train(experiment(corpus, **settings), run, At(step, lambda: os.kill(os.getpid(), number)))
    assert caught.value.exit_code == 128 + number
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)
    train(experiment(corpus, **settings), run, NoDisplay())
    assert_same_runs(whole, run)


def test_running_a_finished_training_again_changes_nothing(whole: Path, corpus: Path) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file() and path.name != "versions.json"}
    train(experiment(corpus), whole, NoDisplay())
    assert before == {path: path.read_bytes() for path in before}


def test_more_updates_may_be_asked_for_later(whole: Path, corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(experiment(corpus, training__max_updates=6), run, NoDisplay())
    train(experiment(corpus), run, NoDisplay())
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_early_stopping_goes_on_as_it_would_have(corpus: Path, tmp_path: Path) -> None:
    """With a learning rate near zero, neither weights nor BLEU or perplexity change, so patience runs out."""
    settings = {
        "training__schedule": {"peak_rate": 1e-30, "initial_rate": 0, "warmup_steps": 0},
        "training__max_updates": 100,
        "validation": {"every_updates": 2, "metric": "bleu", "patience": 3, "bleu_sentences": 4},
    }
    train(experiment(corpus, **settings), tmp_path / "whole", NoDisplay())
    assert [record["step"] for record in log_records(tmp_path / "whole") if record["event"] == "validation"] == [
        2,
        4,
        6,
        8,
    ]
    run = tmp_path / "run"
    for step in (3, 5):
        with pytest.raises(TrainingInterruptedError):
            train(experiment(corpus, **settings), run, At(step, lambda: os.kill(os.getpid(), signal.SIGINT)))
    train(experiment(corpus, **settings), run, NoDisplay())
    assert_same_runs(tmp_path / "whole", run)


def test_epochs_and_validation_at_their_ends(corpus: Path, tmp_path: Path) -> None:
    settings = {"training__max_updates": None, "training__max_epochs": 3, "validation": {"bleu_every": 0}}
    train(experiment(corpus, training__log_every=1, **settings), tmp_path / "run", NoDisplay())
    records = log_records(tmp_path / "run")
    epochs = [record["epoch"] for record in records if record["event"] == "train"]
    assert epochs == sorted([0, 1, 2] * (len(epochs) // 3))
    assert read_learning_curves(tmp_path / "run", "run").epochs == 3
    assert len([record for record in records if record["event"] == "validation"]) == 3
    state = TrainingDirectory(tmp_path / "run").states.read()
    assert state is not None
    assert state[1]["trainer"]["position"] == {"step": records[-1]["step"], "epoch": 3, "update": 0}
    assert state[1]["run"]["total"]["sums"]["sentences"] == 3 * 120


def test_the_result_reads_the_weights_of_a_checkpoint_once(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, paths = checkpoint.read, list[Path]()
    monkeypatch.setattr(checkpoint, "read", lambda path: paths.append(path) or read(path))
    settings = {"training__max_updates": 2, "validation": {"every_updates": 1, "bleu_every": 0}}
    train(experiment(corpus, **settings), tmp_path / "run", NoDisplay())
    counts = Counter(path.name for path in paths if path.name.startswith("step-"))
    assert len(counts) == 2 and min(counts.values()) == 1  # the better one is read again if the average is not better


class Ends(NoDisplay):
    """Records the end of the training as reported to a display."""

    def __init__(self) -> None:
        self.told: set[int | None] = set()

    def begin(self, step: int, total: int | None) -> None:
        self.told.add(total)

    def step(self, report: StepReport, total: int | None) -> None:
        self.told.add(total)


def test_ends_when_the_learning_rate_has_fallen_to_zero(corpus: Path, tmp_path: Path) -> None:
    schedule = {"warmup_steps": 2, "peak_rate": 0.01, "zero_at": 5}
    settings = {"training__max_updates": None, "training__schedule": schedule, "validation": {"bleu_every": 0}}
    display = Ends()
    train(experiment(corpus, **settings), tmp_path / "run", display)
    assert display.told == {5}
    state = TrainingDirectory(tmp_path / "run").states.read()
    assert state is not None
    assert state[1]["trainer"]["position"]["step"] == 5


def run_in_process(plain: Mapping[str, Any], run: Path) -> None:
    import torch

    torch.set_num_threads(1)
    train(Experiment.parse(plain, origin="test"), run, NoDisplay())


def test_survives_kill_9_at_any_moment(whole: Path, corpus: Path, tmp_path: Path) -> None:
    """A process that saves after every update is killed at random moments, some before the first save."""
    context = multiprocessing.get_context("forkserver")  # imports once, and forks a clean process each time
    context.set_forkserver_preload(["jointnmt.training.run"])
    run, moments, kills = tmp_path / "run", random.Random(0), 0
    plain = experiment(corpus).plain()
    while True:
        process = context.Process(target=run_in_process, args=(plain, run))
        before = _saved(run)
        process.start()
        if kills < 10:
            while kills % 2 and process.is_alive() and _saved(run) == before:
                time.sleep(0.001)
            time.sleep(moments.uniform(0, 0.01 if kills % 2 else 0.1))
            process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            break
        kills += 1
    assert process.exitcode == 0
    assert kills >= 4
    assert_same_runs(whole, run)


def _saved(run: Path) -> int | None:
    """Time when the last state was saved, if there is one."""
    try:
        return TrainingDirectory(run).states.last.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def stop_at(corpus: Path, run: Path, step: int, **settings: Any) -> None:
    with pytest.raises(TrainingInterruptedError):
        train(experiment(corpus, **settings), run, At(step, lambda: os.kill(os.getpid(), signal.SIGINT)))


def test_a_damaged_last_checkpoint_gives_way_to_the_one_before(
    whole: Path, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop_at(corpus, tmp_path / "run", 7)
    last = TrainingDirectory(tmp_path / "run").states.last
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        train(experiment(corpus), tmp_path / "run", NoDisplay())
    assert "is damaged" in caplog.text
    assert_same_runs(whole, tmp_path / "run")


def test_only_damaged_checkpoints_are_an_error(corpus: Path, tmp_path: Path) -> None:
    stop_at(corpus, tmp_path / "run", 4)
    for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelError, match="train again"):
        train(experiment(corpus), tmp_path / "run", NoDisplay())


def test_a_model_without_checkpoints_is_not_trained_over(whole: Path, corpus: Path, tmp_path: Path) -> None:
    """For example after checkpoints were deleted to save room, or after `save_pretrained`."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ModelError, match="has a model, but no training state"):
        train(experiment(corpus, training__max_updates=13), run, NoDisplay())
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_model_without_states_is_not_trained_over(whole: Path, corpus: Path, tmp_path: Path) -> None:
    """The two states are the largest files, and validated weights may be kept for averaging."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for name in ("last", "previous"):
        (run / "checkpoints" / f"{name}.safetensors").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for updates in (12, 13):
        with pytest.raises(ModelError, match=r"no training state to resume from \(last\.safetensors"):
            train(experiment(corpus, training__max_updates=updates), run, NoDisplay())
    assert before == {path: path.read_bytes() for path in before}


def test_damaged_versions_are_written_anew(
    whole: Path, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "versions.json").write_text("{")
    train(experiment(corpus), tmp_path / "run", NoDisplay())
    assert "versions.json: is damaged" in caplog.text
    assert json.loads((tmp_path / "run" / "versions.json").read_text())["packages"]


def test_what_is_dropped_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_corpus(tmp_path)
    with (tmp_path / "train.de").open("ab") as source, (tmp_path / "train.en").open("ab") as target:
        source.write(b"\xff\n")
        target.write(b"word1\n")
    settings = {"data__filters": {"invalid": "drop"}, "data__validation": [], "training__max_updates": 1}
    with caplog.at_level(logging.INFO):
        train(experiment(tmp_path, **settings), tmp_path / "run", NoDisplay())
    assert caplog.text.count("invalid UTF-8: 1 (first: ") == 1


@pytest.mark.parametrize("when", ["the last update's validation", "the average's"])
def test_an_interruption_after_the_last_update_loses_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    settings = {"training__checkpoint_every": 1000, "training__max_updates": 7}
    train(experiment(corpus, **settings), tmp_path / "whole", NoDisplay())
    run, measure, measured = tmp_path / "run", Validation.measure, 0

    def measure_until(self: Validation, model: Any, translate: bool) -> Any:
        nonlocal measured
        measured += 1
        if measured == (3 if when.startswith("the last") else 4):
            raise KeyboardInterrupt
        return measure(self, model, translate)

    monkeypatch.setattr(Validation, "measure", measure_until)
    with pytest.raises(TrainingInterruptedError, match="after update 7, saved"):
        train(experiment(corpus, **settings), run, NoDisplay())
    state = TrainingDirectory(run).states.read()
    assert state is not None
    assert state[1]["trainer"]["position"]["step"] == 7
    train(experiment(corpus, **settings), run, NoDisplay())
    assert_same_runs(tmp_path / "whole", run)


def test_the_validation_that_a_stop_at_the_last_update_left_out_is_made_up_for_once(
    corpus: Path, tmp_path: Path
) -> None:
    settings = {"training__max_updates": 6, "training__checkpoint_every": 1000}
    run = tmp_path / "run"
    with pytest.raises(TrainingInterruptedError, match="after update 6, saved"):
        train(experiment(corpus, **settings), run, At(5, lambda: os.kill(os.getpid(), signal.SIGINT)))
    for _ in range(2):
        train(experiment(corpus, **settings), run, NoDisplay())
        assert [record["step"] for record in log_records(run) if record["event"] == "validation"] == [3, 6]
        assert len(choose_checkpoints(run, best=2)) == 2


def test_a_training_whose_weights_become_nan_may_be_skipped_over(corpus: Path, tmp_path: Path) -> None:
    """Validations of such weights have the worst score; with patience, they end the training."""
    validation = {"every_updates": 2, "bleu_every": 1, "metric": "bleu", "patience": 2}
    settings = {"training__non_finite": "skip", "validation": validation, "training__log_every": 2}
    run = tmp_path / "run"
    stop_at(corpus, run, 2, **settings)
    for path in (TrainingDirectory(run).states.last, TrainingDirectory(run).states.previous):
        if path.exists():
            tensors, values = checkpoint.read(path)
            tensors = {
                name: tensor * math.nan if name.startswith("model.") else tensor for name, tensor in tensors.items()
            }
            checkpoint.write(path, tensors, values)
    train(experiment(corpus, **settings), run, NoDisplay())
    records = [record for record in log_records(run) if record["step"] > 2]
    assert [record["step"] for record in records if record["event"] == "validation"] == [4, 6, 8]  # 4 is in the warm-up
    assert all(record["perplexity"] is None for record in records)
    assert all(record["bleu"] is None for record in records if record["event"] == "validation")
    assert all(record["loss"] is None for record in records if record["event"] == "train")


def test_another_configuration_is_refused_with_the_difference(whole: Path, corpus: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"training\.label_smoothing: 0\.1 -> 0\.2") as caught:
        train(experiment(corpus, training__label_smoothing=0.2), whole, NoDisplay())
    assert caught.value.exit_code == 2


def test_a_directory_with_other_things_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigurationError, match="not a run"):
        train(experiment(corpus), tmp_path, NoDisplay())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(("name", "what"), [("train.de", "training"), ("valid.de", "validation")])
def test_changed_data_is_refused(tmp_path: Path, name: str, what: str) -> None:
    write_corpus(tmp_path)
    stop_at(tmp_path, tmp_path / "run", 2)
    text = (tmp_path / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text.replace("wort1 ", "wort2 "), encoding="utf-8")
    for start in (train, prepare_data):
        with pytest.raises(DataError, match=f"{what} data has changed"):
            start(experiment(tmp_path), tmp_path / "run", NoDisplay())


def test_a_state_without_the_validation_data_is_gone_on_from(corpus: Path, tmp_path: Path) -> None:
    """A state as older versions saved it, and one without validation text."""
    stop_at(corpus, tmp_path / "run", 2)
    directory = TrainingDirectory(tmp_path / "run")
    tensors, values = checkpoint.read(directory.states.last)
    del values["validation"]
    checkpoint.write(directory.states.last, tensors, values)
    train(experiment(corpus, training__max_updates=5), tmp_path / "run", NoDisplay())
    assert checkpoint.read_values(directory.states.last)["validation"] is not None


def test_two_trainings_do_not_share_a_directory(corpus: Path, tmp_path: Path) -> None:
    errors: list[Exception] = []

    def second() -> None:
        try:
            train(experiment(corpus), tmp_path / "run", NoDisplay())
        except ConfigurationError as error:
            errors.append(error)

    def start_second() -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    train(experiment(corpus, training__max_updates=2), tmp_path / "run", At(1, start_second))
    assert "another training is running" in str(errors[0])


def test_a_training_without_an_end_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"training\.max_updates.*validation\.patience"):
        train(experiment(corpus, training__max_updates=None), tmp_path / "run", NoDisplay())


def test_without_validation_text_the_last_weights_are_kept(corpus: Path, tmp_path: Path) -> None:
    train(experiment(corpus, data__validation=[], training__max_updates=3), tmp_path / "run", NoDisplay())
    assert TrainingDirectory(tmp_path / "run").holds_result_of([3])


def test_tensorboard_files_are_written(corpus: Path, tmp_path: Path) -> None:
    train(experiment(corpus, training__tensorboard=True, training__max_updates=3), tmp_path / "run", NoDisplay())
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


def test_a_try_that_trained_nothing_does_not_settle_the_configuration(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(experiment(corpus), tmp_path / "plain", NoDisplay())
    settings = {"data__filters": {"min_length": 1000}, "segmentation": {"kind": "word"}}
    with pytest.raises(DataError):
        train(experiment(corpus, **settings), run, NoDisplay())
    train(experiment(corpus), run, NoDisplay())
    assert_same_runs(tmp_path / "plain", run)


def test_a_try_that_trained_nothing_does_not_settle_the_vocabulary(tmp_path: Path) -> None:
    """Texts at another path do not make it another configuration."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_corpus(tmp_path / name)
    for path in (tmp_path / "other").glob("train.*"):
        path.write_text(path.read_text(encoding="utf-8").replace("wor", "mot"), encoding="utf-8")
    (tmp_path / "one" / "valid.en").unlink()
    with pytest.raises(DataError):
        train(experiment(tmp_path / "one"), tmp_path / "run", NoDisplay())
    settings = {"data__root": str(tmp_path / "other"), "data__cache": str(tmp_path / "one" / "cache")}
    train(experiment(tmp_path / "one", **settings, training__max_updates=1), tmp_path / "run", NoDisplay())
    assert Segmentation.load(tmp_path / "run" / "segmentation").source.encode("mott1") == ["mott1"]
