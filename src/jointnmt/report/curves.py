"""Learning curves of runs, read from their logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

from jointnmt.analysis.figures import COLOURS, MARKERS, legend_below
from jointnmt.evaluation.scores import TITLES
from jointnmt.extras import extra
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.log import read_records

with extra("report"):
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter


@dataclass(frozen=True)
class LearningCurves:
    """The learning curves of a run; empty or None without a log."""

    name: str
    training: Sequence[tuple[int, float]] = ()
    """Step and training perplexity, averaged over the updates since the previous point."""
    validation: Sequence[tuple[int, float]] = ()
    """Step and validation perplexity."""
    bleu: Sequence[tuple[int, float]] = ()
    """Step and validation BLEU."""
    chrf: Sequence[tuple[int, float]] = ()
    """Step and validation chrF2, of runs whose metric it was."""
    updates: int | None = None
    epochs: int | None = None
    hours: float | None = None
    """Time of updates and validations."""
    hardware: str | None = None

    def scores(self, metric: Literal["bleu", "chrf"]) -> Sequence[tuple[int, float]]:
        """Step and score of the validation text's translations."""
        return self.bleu if metric == "bleu" else self.chrf

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and perplexity of the best validation."""
        return min(self.validation, key=lambda point: point[1], default=None)


def read_learning_curves(run: Path, name: str) -> LearningCurves:
    """Read the learning curves of a run from its log."""
    files = RunDirectory(run)
    if not files.log.exists():
        return LearningCurves(name)
    records = read_records(files.log)
    trained = [record for record in records if record.get("event") == "train"]
    validated = [record for record in records if record.get("event") == "validation"]
    try:
        hardware = str(json.loads(files.versions.read_text(encoding="utf-8"))["hardware"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):  # missing or damaged
        hardware = None
    return LearningCurves(
        name,
        training=_points(trained, "perplexity"),
        validation=_points(validated, "perplexity"),
        bleu=_points(validated, "bleu"),
        chrf=_points(validated, "chrf"),
        updates=max((record["step"] for record in records), default=None),
        epochs=max((record["epoch"] + 1 for record in trained if "epoch" in record), default=None),
        hours=sum(record.get("seconds") or 0.0 for record in records) / 3600 if records else None,
        hardware=hardware,
    )


def perplexity_figure(runs: Sequence[LearningCurves]) -> Figure:
    """Training perplexity (dotted) and validation perplexity (with markers) by step.

    The axis ends at twice the highest validation perplexity, as that of the first updates is thousands of times higher.
    """
    figure, axes = _figure("Perplexity while learning", "perplexity")
    for run, colour in zip(runs, cycle(COLOURS), strict=False):
        axes.plot(*_columns(run.training), color=colour, linewidth=1.2, linestyle=":")
    for run, colour, marker in zip(runs, cycle(COLOURS), cycle(MARKERS), strict=False):
        every = max(1, len(run.validation) // 12)
        style = {"color": colour, "linewidth": 1.5, "marker": marker, "markersize": 4.5, "markevery": every}
        axes.plot(*_columns(run.validation), **style)
    axes.set_yscale("log")
    if validated := [value for run in runs for _, value in run.validation]:
        axes.set_ylim(top=2 * max(validated))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    names = [f"{run.name}, {text}" for text in ("training", "validation") for run in runs]
    _legend(figure, axes, names)
    return figure


def score_figure(runs: Sequence[LearningCurves], metric: Literal["bleu", "chrf"]) -> Figure:
    """The score of the validation text's translations by step."""
    figure, axes = _figure(f"{TITLES[metric]} of the validation text while learning", TITLES[metric])
    for run, colour, marker in zip(runs, cycle(COLOURS), cycle(MARKERS), strict=False):
        axes.plot(*_columns(run.scores(metric)), color=colour, linewidth=1.5, marker=marker, markersize=5)
    _legend(figure, axes, [run.name for run in runs])
    return figure


def _legend(figure: Figure, axes: Any, names: Sequence[str]) -> None:
    """Add a legend of the lines that are not empty."""
    drawn = [(line, name) for line, name in zip(axes.get_lines(), names, strict=True) if len(line.get_xdata())]
    legend_below(figure, [line for line, _ in drawn], [name for _, name in drawn], fontsize=8)


def _points(records: Sequence[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    return [(record["step"], record[key]) for record in records if record.get(key) is not None]


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [value for _, value in points]


def _figure(title: str, measure: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(5.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("updates")
    axes.set_ylabel(measure)
    axes.grid(color="0.85", linewidth=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes
