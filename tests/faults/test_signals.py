"""Signals that stop a training: handled in all long operations, without loss."""

from __future__ import annotations

import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jointnmt.data.store import build_store
from jointnmt.errors import DataError
from jointnmt.experiment import Experiment
from jointnmt.interruption import Interruption, StopSignals, heeding_signals
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.loop import TrainingInterruptedError
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.training.validation import Validation
from support.runs import assert_same_runs, log_records
from support.tiny import tiny_recipe, write_corpus


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Restore signals even if the tests are run by `nohup`, whose processes ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


class Preparing(NoDisplay):
    """Sends a signal to this process when something is prepared."""

    def __init__(self, what: str, number: int) -> None:
        self.what, self.number = what, number

    def preparing(self, what: str, done: int, total: int | None) -> None:
        if what == self.what:
            send(self.number)


def experiment(folder: Path, **changes: Any) -> Experiment:
    settings = {"training__max_updates": 7, "training__checkpoint_every": 1000}
    return Experiment.parse(tiny_recipe(folder, **settings, **changes), origin="test")


@pytest.fixture(scope="module")
def whole(corpus: Path) -> Path:
    """An uninterrupted run."""
    train(experiment(corpus), corpus / "whole", NoDisplay())
    return corpus / "whole"


@pytest.mark.parametrize(
    ("number", "measuring", "step"),
    [(signal.SIGTERM, 1, 3), (signal.SIGINT, 1, 3), (signal.SIGHUP, 3, 7), (signal.SIGUSR1, 4, 7)],
    ids=["SIGTERM", "SIGINT", "SIGHUP in the last", "SIGUSR1 in that of the average"],
)
def test_a_signal_during_a_validation_ends_it_and_the_state_is_saved(
    whole: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    measuring: int,
    step: int,
) -> None:
    """No update since the last save, here all of them, is lost."""
    run, measure, measured = tmp_path / "run", Validation.measure, 0

    def measure_and_be_told(self: Validation, model: Any, translate: bool) -> Any:
        nonlocal measured
        if (measured := measured + 1) == measuring:
            send(number)
        return measure(self, model, translate)

    monkeypatch.setattr(Validation, "measure", measure_and_be_told)
    with pytest.raises(TrainingInterruptedError, match=f"after update {step}, saved") as caught:
        train(experiment(corpus), run, NoDisplay())
    assert caught.value.exit_code == 128 + number
    state = TrainingDirectory(run).states.read()
    assert state is not None
    assert state[1]["trainer"]["position"]["step"] == step
    train(experiment(corpus), run, NoDisplay())
    assert_same_runs(whole, run)


@pytest.mark.parametrize("every", [7, 3], ids=["before the end", "at the end"])
def test_a_signal_during_the_last_save_or_before_the_average_is_heeded(
    whole: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The last validation is one of the scheduled ones, or replaces one at the end."""
    run, save, stopping = tmp_path / "run", TrainingDirectory.save, [True]
    settings = experiment(corpus, validation={"every_updates": every, "bleu_every": 2, "bleu_sentences": 4})

    def save_and_be_told(self: TrainingDirectory, tensors: Any, values: Any) -> None:
        if values["run"]["validated_step"] == 7 and stopping.pop():
            send(signal.SIGTERM)
        save(self, tensors, values)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingDirectory, "save", save_and_be_told)
        with pytest.raises(TrainingInterruptedError, match="after update 7, saved") as caught:
            train(settings, run, NoDisplay())
    assert caught.value.exit_code == 143
    assert not any(record["event"] == "average" for record in log_records(run))
    train(settings, run, NoDisplay())
    if every == 3:
        assert_same_runs(whole, run)


@pytest.mark.parametrize("what", ["reading the target", "segmenting the text"])
def test_a_signal_while_the_training_is_prepared_is_heeded(whole: Path, tmp_path: Path, what: str) -> None:
    write_corpus(tmp_path)
    with pytest.raises(TrainingInterruptedError, match="during preparation") as caught:
        train(experiment(tmp_path), tmp_path / "run", Preparing(what, signal.SIGTERM))
    assert caught.value.exit_code == 143
    assert not list((tmp_path / "cache").rglob("*.partial"))
    train(experiment(tmp_path), tmp_path / "run", NoDisplay())
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_library_that_lets_no_signal_through_is_left_alone() -> None:
    """Training a segmentation, which takes minutes, is such a library call."""
    end = threading.Event()

    def deaf() -> bool:
        threading.Timer(0.05, send, [signal.SIGTERM]).start()
        return end.wait(60)

    with StopSignals(), pytest.raises(Interruption, match="SIGTERM"):
        heeding_signals(deaf)
    assert not end.is_set()
    end.set()
    assert heeding_signals(lambda: 5) == 5
    with pytest.raises(DataError, match="bad line"):
        heeding_signals(_fail)


def _fail() -> None:
    raise DataError("bad line")


def test_segmentation_is_learnt_where_signals_are_heeded(tmp_path: Path) -> None:
    """The library reads its texts in another thread, so that this one can handle signals."""
    threads = set()

    def texts() -> Any:
        for number in range(100):
            threads.add(threading.current_thread())
            yield f"word{number}"

    config = experiment(tmp_path).segmentation
    Segmentation.train(config, texts(), texts(), "de", "en")
    assert threading.main_thread() not in threads


@pytest.mark.slow
def test_processes_that_segment_are_ended_at_once(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jointnmt.data.store.POOLED_FROM_BYTES", 0)
    monkeypatch.setattr("jointnmt.data.blocks.BLOCK_LINES", 5)
    settings = experiment(corpus, data__processes=2, data__cache=str(tmp_path)).data
    segmentation = Segmentation.load(_segmented(corpus))

    def interrupted(pairs: int) -> None:
        assert multiprocessing.active_children()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(settings, segmentation, progress=interrupted)
    assert not multiprocessing.active_children()


def _segmented(corpus: Path) -> Path:
    folder = corpus / "segmentation"
    words = ((corpus / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("de", "en"))
    Segmentation.train(experiment(corpus).segmentation, *words, "de", "en").save(folder)
    return folder


def test_what_is_ignored_stays_ignored() -> None:
    """For example SIGHUP under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            send(signal.SIGHUP)
        assert stop.asked is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_deferred_signal_waits_and_a_second_one_does_not_break_off_what_ends_the_work() -> None:
    told: list[int] = []
    with StopSignals() as stop:
        with stop.deferred(lambda: told.append(1)):
            send(signal.SIGTERM)
            send(signal.SIGTERM)
            send(signal.SIGINT)  # as torchrun forwards it, or a terminal
        assert told == [1]
        with pytest.raises(Interruption) as caught:
            stop.check()
        send(signal.SIGTERM)
        with stop.deferred(lambda: told.append(2)):
            assert told == [1, 2]
    assert caught.value.number == signal.SIGTERM


def on_a_terminal(command: list[str], ready: Callable[[], bool]) -> tuple[subprocess.Popen[bytes], int]:
    """A process with a terminal of its own that is `ready`, and the other end of the terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=its, stdout=its, stderr=its, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    os.close(its)
    while process.poll() is None and not ready():
        time.sleep(0.005)
    return process, ours


@pytest.mark.slow
def test_a_closed_terminal_saves_the_training(corpus: Path, tmp_path: Path) -> None:
    """The progress bar then cannot be written, which must not prevent saving the state."""
    recipe, run = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(experiment(corpus, training__log_every=1).to_yaml(), encoding="utf-8")
    command = [sys.executable, "-m", "jointnmt", "train", str(recipe), "--out", str(run)]
    endless = ["--set", "training.max_updates=100000", "--set", "validation.every_updates=100000"]
    process, terminal = on_a_terminal([*command, *endless], (run / "log.jsonl").exists)
    time.sleep(0.2)
    os.close(terminal)
    assert process.wait(30) == 129
    state = TrainingDirectory(run).states.read()
    assert state is not None
    assert state[1]["trainer"]["position"]["step"] > 0
