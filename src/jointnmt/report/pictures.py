"""Figures as embedded pictures, each with a text description and its numbers."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jointnmt.analysis.attention import Panel
from jointnmt.analysis.attention_figures import attention_figure
from jointnmt.analysis.buckets import BucketValue
from jointnmt.analysis.corpus import Analysis
from jointnmt.analysis.figures import analysis_csv, analysis_figure, filled
from jointnmt.analysis.fonts import svg_text
from jointnmt.evaluation.p_values import star, stated
from jointnmt.evaluation.scores import TITLES
from jointnmt.extras import extra
from jointnmt.report.curves import LearningCurves, perplexity_figure, score_figure
from jointnmt.report.verdict import listed

with extra("report"):
    import matplotlib
    from matplotlib.figure import Figure

PIXELS_PER_INCH = 96
ATTENTION_PIXELS_PER_INCH = 78
"""Resolution for attention, so that three matrices fit side by side on a desktop, a short one on a phone."""
FIGURE_WIDTH = 5.4
"""Width in inches: two figures fit side by side on a desktop, and text stays legible when scaled to a phone."""


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    details: tuple[str, ...] = ()
    """Lines below it, in a smaller font."""


@dataclass(frozen=True)
class Table:
    """A table with a heading for each row and each column."""

    caption: str
    columns: Sequence[str]
    """Headings; the first is for the row headings."""
    rows: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True)
class Picture:
    """A figure in the page."""

    title: str
    source: str
    """A `data:` URL of the picture as SVG."""
    width: int
    """Width in pixels."""
    description: str
    """Alternative text."""
    subtitle: str = ""
    table: Table | None = None
    csv: str = ""
    """A `data:` URL of the numbers."""


def analysis_picture(analysis: Analysis) -> Picture:
    """A picture of measures by bucket."""
    rows = []
    for values in filled(analysis):
        sizes = [value.size for value in values]
        size = f"{sizes[0]:,}" if len(set(sizes)) == 1 else f"{min(sizes):,} to {max(sizes):,}"
        rows.append((values[0].bucket, [Cell(size), *map(_value, values)]))
    columns = [analysis.bucketed_by, f"n ({analysis.unit})", *analysis.systems]
    caption = f"{analysis.title}, with 95% intervals by bootstrap"
    if empty := [
        each.bucket for each in next(iter(analysis.systems.values())) if each.bucket not in {r[0] for r in rows}
    ]:
        caption += f"; nothing is in {listed(empty)}"
    first, *others = analysis.systems
    if len(others) > len(analysis.other_tokens):
        caption += f", and p against {first}"
    if analysis.other_tokens:
        caption += f"; {listed(analysis.other_tokens)}: not compared with {first}, whose buckets have other tokens"
    table = Table(caption, columns, rows)
    return _picture(
        analysis.title,
        analysis_figure(analysis, FIGURE_WIDTH),
        f"Chart: {analysis.measure} by {analysis.bucketed_by}, of {listed([*analysis.systems])}. The numbers are in "
        "the table below it.",
        table,
        data_url("text/csv", analysis_csv(analysis)),
    )


def learning_pictures(runs: Sequence[LearningCurves]) -> list[Picture]:
    """Pictures of perplexity, BLEU and chrF by step; none for what no run's log has."""
    pictures = []
    if any(run.validation for run in runs):
        ends = "; ".join(
            f"{run.name} is best at update {run.best[0]:,} with {run.best[1]:.2f}" for run in runs if run.best
        )
        title = "Perplexity of training and validation text"
        pictures.append(_picture(title, perplexity_figure(runs), f"Chart: {title.lower()} by update. {ends}."))
    scores: tuple[Literal["bleu", "chrf"], ...] = ("bleu", "chrf")
    for metric in scores:
        if measured := {run.name: run.scores(metric) for run in runs if run.scores(metric)}:
            ends = "; ".join(f"{name} ends at {points[-1][1]:.2f}" for name, points in measured.items())
            title = f"{TITLES[metric]} of the validation text"
            pictures.append(_picture(title, score_figure(runs, metric), f"Chart: {title} by update. {ends}."))
    return pictures


def attention_picture(panel: Panel) -> Picture:
    """A picture of one attention matrix."""
    strongest = (
        f"{row or 'it'}: {panel.columns[weights.argmax()]}"
        for row, weights in zip(panel.rows, panel.weights, strict=True)
    )
    description = f"Heat map: {panel.title}, {panel.subtitle}. Greatest weight of each row: {', '.join(strongest)}."
    picture = _picture(panel.title, attention_figure([panel], panel_titles=False), description)
    return replace(
        picture, subtitle=panel.subtitle, width=round(picture.width * ATTENTION_PIXELS_PER_INCH / PIXELS_PER_INCH)
    )


def data_url(kind: str, text: str) -> str:
    """A `data:` URL that holds a text."""
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


def _picture(title: str, figure: Figure, description: str, table: Table | None = None, csv: str = "") -> Picture:
    if len(figure.axes) == 1 and not figure.axes[0].images:
        figure.axes[0].set_title("")  # the page shows it as a heading
    with matplotlib.rc_context({"svg.hashsalt": title}):  # a fixed one makes ids deterministic
        source = base64.b64encode(svg_text(figure).encode()).decode()
    width = round(float(figure.get_size_inches()[0]) * PIXELS_PER_INCH)
    return Picture(title, f"data:image/svg+xml;base64,{source}", width, description, table=table, csv=csv)


def _value(value: BucketValue) -> Cell:
    if value.value is None:
        return Cell("–")
    text, interval = value.rounded()
    return Cell(text, resampled_lines(interval, value.p_value))


def resampled_lines(interval: str, p_value: float | None) -> tuple[str, ...]:
    """The lines below a value: its interval, if there is one, and its p-value, if it was compared."""
    return tuple(filter(None, (interval, "" if p_value is None else stated(p_value) + star(p_value))))
