"""Comparison of two runs of the same training, and a display that stops one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jointnmt.training.progress import NoDisplay
from jointnmt.training.report import StepReport

TIMES = {"seconds", "tokens_per_second", "cells_per_second"}


class At(NoDisplay):
    """Does something after a certain update."""

    def __init__(self, step: int, action: Callable[[], None]) -> None:
        self.at, self.action = step, action

    def step(self, report: StepReport, total: int | None) -> None:
        if report.position.step == self.at:
            self.action()


def log_records(run: Path) -> list[dict[str, Any]]:
    """The records of a run without times."""
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def assert_same_runs(one: Path, other: Path) -> None:
    """Check that weights, logs, translations and kept checkpoints are equal, byte for byte except for times."""
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert log_records(one) == log_records(other)
    for folder in ("validation", "checkpoints"):
        names = sorted(path.name for path in (one / folder).iterdir())
        assert names == sorted(path.name for path in (other / folder).iterdir())
        for name in names:
            if name not in ("last.safetensors", "previous.safetensors"):
                assert (one / folder / name).read_bytes() == (other / folder / name).read_bytes(), name
