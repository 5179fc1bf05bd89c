"""Figures of measures by bucket, several systems with intervals, and their numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import count as count_from
from itertools import cycle, pairwise
from typing import Any

from jointnmt.analysis.buckets import BucketValue
from jointnmt.analysis.corpus import Analysis
from jointnmt.evaluation.p_values import SIGNIFICANT
from jointnmt.extras import extra

with extra("report"):
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable with colour vision deficiencies; without yellow, too faint on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # distinguishable in black and white
STYLES = ("-", "--", "-.", ":")
HEIGHT = 4.2
"""Height of a figure without its legend, in inches."""
SPREAD = 0.36
"""Share of a bucket's width over which systems are spread, so that intervals do not overlap."""


def analysis_figure(analysis: Analysis, width: float = 7.2) -> Figure:
    """Figure with a point and its 95% interval for each system and non-empty bucket, and the buckets' sizes.

    Sizes that do not fit are left to the file of numbers. A star at the top in a system's colour marks a significant
    difference from the first system.

    `width` is in inches.
    """
    figure = Figure(figsize=(width, HEIGHT), layout="constrained")
    axes = figure.subplots()
    count = len(analysis.systems)
    # After seven lines, colours repeat with other markers.
    markers = (MARKERS[(number + number // len(COLOURS)) % len(MARKERS)] for number in count_from(0))
    looks = zip(cycle(COLOURS), markers, cycle(STYLES), strict=False)
    stars, handles = [], []
    columns = [*zip(*filled(analysis), strict=True)]
    for number, (values, drawn) in enumerate(zip(columns, looks, strict=False)):
        shift = SPREAD * (number - (count - 1) / 2) / max(count, 1)
        points = [(place + shift, each) for place, each in enumerate(values) if each.value is not None]
        handles.append(_draw_system(axes, points, drawn))
        stars += [
            (place, drawn[0]) for place, each in points if each.p_value is not None and each.p_value < SIGNIFICANT
        ]
    for place, colour in stars:  # in a separate row above the lines
        top = axes.get_xaxis_transform()
        axes.text(place, 1, "*", transform=top, ha="center", va="top", color=colour, fontsize=14, weight="bold")
    if stars:
        axes.margins(y=0.12)
    if analysis.ideal is not None:
        axes.axhline(analysis.ideal, color="0.45", linewidth=0.8, zorder=1)
    axes.set_ylabel(analysis.measure)
    axes.set_title(analysis.title, fontsize=11)
    axes.grid(axis="y", color="0.85", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    tested = any(each.p_value is not None for values in analysis.systems.values() for each in values)
    meant = f"; *: p < {SIGNIFICANT} against the first" if tested else ""
    legend_below(figure, handles, [*analysis.systems], title=f"value and 95% interval{meant}", title_fontsize=8)
    _name_buckets(figure, axes, analysis)
    return figure


def legend_below(
    figure: Figure, handles: Sequence[Any], names: Sequence[str], fontsize: float = 9, **look: Any
) -> None:
    """Put a legend below everything else, in as many columns as fit, and make room for it.

    Names are drawn verbatim: matplotlib would skip those with a leading underscore and read formulas.
    """
    for columns in range(len(names), 0, -1):
        legend = figure.legend(
            *(handles, ["name"] * len(names)),
            **(look | {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": fontsize}),
        )
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_parse_math(False)
            text.set_text(name)
        taken = legend.get_window_extent()
        if taken.width <= figure.bbox.width or columns == 1:
            break
        legend.remove()
    figure.set_size_inches(
        max(figure.get_figwidth(), taken.width / figure.dpi), figure.get_figheight() + taken.height / figure.dpi
    )


def _name_buckets(figure: Figure, axes: Axes, analysis: Analysis) -> None:
    """The names of the buckets below the axis, with their sizes if these differ and fit."""
    names, sizes = _labels(analysis)
    if len(set(sizes)) == 1 and len(sizes[0]) == 1:
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel(f"{analysis.bucketed_by} (n = {sizes[0][0]} {analysis.unit})")
        return
    labels = ["\n".join((name, *size)) for name, size in zip(names, sizes, strict=True)]
    ticks = axes.set_xticks(range(len(names)), labels, fontsize=8)
    axes.set_xlabel(f"{analysis.bucketed_by} (below: n, in {analysis.unit})")
    figure.draw_without_rendering()  # so that their places are known
    places = [tick.label1.get_window_extent() for tick in ticks]
    if any(left.x1 >= right.x0 for left, right in pairwise(places)):
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel(analysis.bucketed_by)


def _draw_system(
    axes: Axes, points: Sequence[tuple[float, BucketValue]], look: tuple[str, str, str]
) -> ErrorbarContainer:
    """Draw a system's values at their places, with known intervals; `look` is colour, marker and line style."""
    colour, marker, style = look
    middles = [each.value or 0.0 for _, each in points]
    lows = [each.low for _, each in points]
    highs = [each.high for _, each in points]
    below = [0.0 if low is None else max(middle - low, 0.0) for middle, low in zip(middles, lows, strict=True)]
    above = [0.0 if high is None else max(high - middle, 0.0) for middle, high in zip(middles, highs, strict=True)]
    return axes.errorbar(
        [place for place, _ in points],
        middles,
        yerr=[below, above],
        color=colour,
        marker=marker,
        linestyle=style,
        linewidth=1.3,
        markersize=5,
        capsize=3,
    )


def filled(analysis: Analysis) -> list[tuple[BucketValue, ...]]:
    """The values of all systems in each bucket that is not empty for all of them; all buckets if there is none."""
    buckets = [*zip(*analysis.systems.values(), strict=True)]
    return [values for values in buckets if any(value.size for value in values)] or buckets


def _labels(analysis: Analysis) -> tuple[list[str], list[tuple[str, ...]]]:
    """Names of the buckets and the lines of their sizes: two lines if sizes differ, as systems may differ in pieces."""
    names: list[str] = []
    shown: list[tuple[str, ...]] = []
    for values in filled(analysis):
        sizes = sorted({value.size for value in values})
        names.append(values[0].bucket)
        shown.append((f"{sizes[0]:,}",) if len(sizes) == 1 else (f"{sizes[0]:,}", f"to {sizes[-1]:,}"))
    return names, shown


def analysis_csv(analysis: Analysis) -> str:
    """CSV with a row for each system and bucket; an empty bucket has no value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["system", "bucket", f"size ({analysis.unit})", analysis.measure, "low", "high", "p"])
    for name, values in analysis.systems.items():
        for each in values:
            writer.writerow(
                [name, each.bucket, each.size, *map(_written, (each.value, each.low, each.high, each.p_value))]
            )
    return text.getvalue()


def _written(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
