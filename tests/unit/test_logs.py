"""Logs and displays of a training."""

from __future__ import annotations

import io
import json
import logging
import math
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from jointnmt.runs.log import RunLog
from jointnmt.training.progress import LiveDisplay, LogDisplay
from jointnmt.training.report import RunningStats, StepReport
from support.tiny import tiny_trainer


@pytest.fixture(scope="module")
def reports() -> list[StepReport]:
    return list(islice(tiny_trainer().steps(), 5))


def test_a_window_gives_means_over_tokens(reports: list[StepReport]) -> None:
    window = RunningStats()
    for report in reports:
        window = window.add(report)
    record = window.record()
    tokens = sum(report.sums.target_tokens for report in reports)
    assert record["target_tokens"] == tokens
    assert record["loss"] == pytest.approx(sum(report.sums.loss for report in reports) / tokens)
    assert record["perplexity"] == pytest.approx(math.exp(sum(report.sums.nll for report in reports) / tokens))
    assert record["seconds"] == pytest.approx(sum(report.seconds for report in reports))
    assert record["cells_per_second"] == pytest.approx(sum(r.sums.cells for r in reports) / record["seconds"])
    assert 0 <= record["padding"] < 1
    assert RunningStats.from_plain(json.loads(json.dumps(window.plain()))) == window


def test_a_log_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    logs = RunLog(path, None, 0)
    for step in range(1, 6):
        logs.write("train", step, loss=1 / step)
    logs.close()
    path.write_text(path.read_text(encoding="utf-8") + '{"event": "train", "st', encoding="utf-8")  # killed here
    logs = RunLog(path, None, 3)
    logs.write("train", 4, loss=math.nan)
    logs.close()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    assert records[-1]["loss"] is None  # JSON has no NaN


def test_tensorboard_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begin, end, value in ((0, 5, 1.0), (3, 6, 2.0)):
        logs = RunLog(tmp_path / "log.jsonl", tmp_path / "events", begin)
        for step in range(begin + 1, end + 1):
            logs.write("train", step, loss=value, best=True, signature="text")
        logs.close()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    scalars = [(scalar.step, scalar.value) for scalar in events.Scalars("train/loss")]
    assert scalars == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0), (6, 2.0)]


def test_the_live_display_shows_loss_speed_and_time_left(reports: list[StepReport]) -> None:
    stream = io.StringIO()
    display = LiveDisplay(Console(file=stream, force_terminal=True, width=200))
    display.preparing("segmenting the text", 70_000, None)
    display.bar.refresh()
    display.begin(0, 10)
    for report in reports:
        display.step(report, 10)
    display.validating()
    display.end()
    shown = stream.getvalue()
    for text in ("segmenting the text", "70000/?", "5/10", "perplexity", "tokens/s", "cells/s", "validating"):
        assert text in shown


def test_the_plain_display_writes_lines(reports: list[StepReport], caplog: pytest.LogCaptureFixture) -> None:
    display = LogDisplay()
    display.begin(0, None)
    display.step(reports[-1], 3605)
    record = {**RunningStats().add(reports[-1]).record(), "seconds": 2.0}
    with caplog.at_level(logging.INFO):
        display.summary(5, record)
    assert "update 5/3605: loss" in caplog.text
    assert "2:00:00 left" in caplog.text
