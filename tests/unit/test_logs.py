"""Logs and displays of a training."""

from __future__ import annotations

import io
import json
import logging
import math
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from jointnmt.runs.log import RunLog, read_records
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


def test_a_window_without_an_update_has_no_means(reports: list[StepReport], caplog: pytest.LogCaptureFixture) -> None:
    skipped = replace(reports[0], skipped=True)
    record = RunningStats().add(skipped).add(skipped).record()
    assert (record["updates"], record["skipped"]) == (0, 2)
    assert all(math.isnan(record[key]) for key in ("loss", "nll", "perplexity", "padding"))
    display = LogDisplay()
    display.begin(0, None)
    with caplog.at_level(logging.INFO):
        display.summary(2, record)
    assert "update 2: loss or gradient not finite, 2 updates skipped and none done" in caplog.text


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


DAMAGED = {
    "a list": b"[]",
    "a number": b"5",
    "no step": b'{"event": "train", "loss": 1}',
    "step null": b'{"event": "train", "step": null}',
    "step true": b'{"event": "train", "step": true}',
    "step negative": b'{"event": "train", "step": -1}',
    "step text": b'{"event": "train", "step": "1"}',
    "event null": b'{"event": null, "step": 1}',
    "deep nesting": b"[" * 100_000,
    "digits": b'{"event": "train", "step": ' + b"9" * 5000 + b"}",
    "no UTF-8": b'{"event": "train", "step": 1, "x": "\xff"}',
    "NUL": b"\0" * 100,
    "empty": b"",
    "half": b'{"event": "tra',
    "perplexity text": b'{"event": "validation", "step": 1, "perplexity": "x"}',
    "steps": b'{"event": "average", "step": 1, "steps": 1}',
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_counted_and_kept_aside(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path, good = tmp_path / "log.jsonl", b'{"event": "train", "step": 1}\n'
    path.write_bytes(good + line + b"\n" + good.replace(b"1", b"2"))
    assert [record["step"] for record in read_records(path)] == [1, 2]
    assert "log.jsonl: 1 line is damaged, the first being line 2; left out" in caplog.text
    RunLog(path, None, 2).close()
    assert path.read_bytes() == good + good.replace(b"1", b"2")
    assert (tmp_path / "log.jsonl.damaged").read_bytes() == line + b"\n"
    assert "moved to log.jsonl.damaged" in caplog.text


def test_a_line_that_is_being_written_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "train", "step": 1}\n{"event": "tra')
    assert len(read_records(path)) == 1
    RunLog(path, None, 1).close()
    assert not caplog.text
    path.write_text('{"event": "train", "step": 1}')  # as left by an editor
    logs = RunLog(path, None, 1)
    logs.write("train", 2)
    logs.close()
    assert len(path.read_text().splitlines()) == 2


def test_every_record_stands_in_a_log_once(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    records = [("train", 1), ("validation", 1), ("validation", 1), ("train", 2), ("validation", 2), ("average", 2)]
    path.write_text("".join(json.dumps({"event": event, "step": step}) + "\n" for event, step in records))
    logs = RunLog(path, None, 2, {"validation"})
    assert logs.has("average", 2)
    assert not logs.has("validation", 2)
    logs.close()
    found = [(record["event"], record["step"]) for record in read_records(path)]
    assert found == [("train", 1), ("validation", 1), ("train", 2), ("average", 2)]


def test_tensorboard_has_what_is_logged_again_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for again in ((), {"validation"}):
        logs = RunLog(tmp_path / "log.jsonl", tmp_path / "events", 3 if again else 0, again)
        if not again:
            logs.write("train", 3, loss=1.0)
        logs.write("validation", 3, nll=2.0)
        logs.close()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    for tag in ("train/loss", "validation/nll"):
        assert [scalar.step for scalar in events.Scalars(tag)] == [3]


def test_tensorboard_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begin, end, value in ((0, 2, 3.0), (0, 5, 1.0), (3, 6, 2.0)):  # the first one was killed before it saved
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


def test_progress_fits_80_columns_and_begins_with_share_time_left_and_count(reports: list[StepReport]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    display = LiveDisplay(console)
    display.begin(0, 3605)
    for report in reports:
        display.step(report, 3605)
    (line,) = "".join(each.text for each in console.render(display.bar.get_renderable())).splitlines()
    assert len(line) <= 80
    assert re.match(r" +\d+% [\d:-]+ +5/3605 epoch \d: loss [\d.]+, perplexity ", line), line


def test_the_plain_display_writes_lines(reports: list[StepReport], caplog: pytest.LogCaptureFixture) -> None:
    display = LogDisplay()
    display.begin(0, None)
    display.step(reports[-1], 3605)
    record = {**RunningStats().add(reports[-1]).record(), "seconds": 2.0}
    with caplog.at_level(logging.INFO):
        display.summary(5, record)
    assert "update 5/3605: loss" in caplog.text
    assert "2:00:00 left" in caplog.text
