"""A training that ends at any moment around its records: after resumption, every record is there once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jointnmt.experiment import Experiment
from jointnmt.runs.log import RunLog
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from support.tiny import tiny_recipe, write_corpus

TIMES = {"seconds", "tokens_per_second", "cells_per_second"}

STEPS = [
    (RunLog, "write"),
    (TrainingDirectory, "write_weights"),
    (TrainingDirectory, "write_result"),
    (TrainingDirectory, "write_translations"),
    (TrainingDirectory, "save"),
]


class Killed(BaseException):
    """The end of a process, with respect to its files."""


def experiment(folder: Path, **changes: Any) -> Experiment:
    settings = {"training__max_updates": 3, "training__log_every": 1, "training__checkpoint_every": 1000}
    validation = {"every_updates": 2, "bleu_every": 1, "bleu_sentences": 2}
    return Experiment.parse(tiny_recipe(folder, **settings, validation=validation, **changes), origin="test")


def log(run: Path) -> list[dict[str, Any]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def kill_after(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """End the training after its `count`-th step on files; the list counts them."""
    done = [0]

    def ending(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*arguments: Any, **options: Any) -> Any:
            result = act(*arguments, **options)
            done[0] += 1
            if done[0] == count:
                raise Killed
            return result

        return acted

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, ending(getattr(owner, name)))
    return done


def test_every_record_stands_there_once_whenever_it_was_killed(tmp_path: Path) -> None:
    """Kills from the last validation on; with shortcuts, which also log their gates."""
    write_corpus(tmp_path)
    settings = experiment(tmp_path, model__shortcuts={"kind": "plain"})
    with pytest.MonkeyPatch.context() as patched:
        done = kill_after(patched, 0)
        train(settings, tmp_path / "whole", NoDisplay())
    expected = log(tmp_path / "whole")
    assert {record["event"] for record in expected} >= {"train", "validation", "average"}
    for moment in range(done[0] // 2, done[0] + 1, 3):
        run = tmp_path / f"killed-{moment}"
        with pytest.MonkeyPatch.context() as patched:
            kill_after(patched, moment)
            with pytest.raises(Killed):
                train(settings, run, NoDisplay())
        train(settings, run, NoDisplay())
        assert log(run) == expected, f"killed after step {moment}"
        assert (run / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()
        assert (run / "validation" / "average.txt").exists()


@pytest.mark.parametrize("ends", [{"training__max_updates": 7}, {"validation": {"every_updates": 7, "patience": 1}}])
def test_no_update_is_left_out(tmp_path: Path, ends: dict[str, Any]) -> None:
    """Whatever the end of the training and the order of its log lines."""
    write_corpus(tmp_path)
    settings = {"training__max_updates": 40, "training__log_every": 6, "training__schedule__peak_rate": 10.0} | ends
    train(Experiment.parse(tiny_recipe(tmp_path, **settings), origin="test"), tmp_path / "run", NoDisplay())
    records = log(tmp_path / "run")
    trained = [record for record in records if record["event"] == "train"]
    assert sum(record["updates"] for record in trained) == max(record["step"] for record in records)
    assert trained[-1]["step"] % 6


def test_a_report_that_an_older_version_left_out_is_made_up_for(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    run, settings = tmp_path / "run", experiment(tmp_path)
    train(settings, run, NoDisplay())
    expected = log(run)
    assert expected.pop()["event"] == "average"
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in expected))
    (run / "validation" / "average.txt").unlink()
    train(settings, run, NoDisplay())
    assert [record["event"] for record in log(run)] == [*(record["event"] for record in expected), "average"]
    assert (run / "validation" / "average.txt").exists()


@pytest.mark.parametrize("line", ["[]", "5", '{"event": "train", "step": null}', "[" * 100_000])
def test_a_damaged_line_does_not_end_a_resumption(tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    write_corpus(tmp_path)
    run = tmp_path / "run"
    train(experiment(tmp_path, data__validation=[]), run, NoDisplay())
    before = (run / "log.jsonl").read_text()
    (run / "log.jsonl").write_text(f"{line}\n{before}")
    train(experiment(tmp_path, data__validation=[]), run, NoDisplay())
    assert (run / "log.jsonl").read_text() == before
    assert "log.jsonl: 1 line is damaged, the first being line 1; moved to log.jsonl.damaged" in caplog.text
