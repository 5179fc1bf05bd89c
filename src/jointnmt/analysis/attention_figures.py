"""Figures of the attention weights of one translation."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jointnmt.analysis.attention import Panel
from jointnmt.analysis.fonts import any_script
from jointnmt.extras import extra

with extra("report"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR_MAP = "cividis"  # perceptually uniform, also with colour vision deficiencies
CELL = 0.26
LETTER = 0.085
LEFT, RIGHT, TOP, BOTTOM = 0.5, 0.95, 0.65, 0.5
"""Margins of a panel for axis names, colour bar and title, without tick labels, in inches like all lengths here."""
TOP_WITHOUT_TITLE = 0.15
BAR_CELLS = 5
"""Smallest height of a colour bar in rows, so that its numbers do not overlap."""


def attention_figure(panels: Sequence[Panel], title: str = "", panel_titles: bool = True) -> Figure:
    """A figure of the panels, labelled with their pieces, each with a colour bar.

    Without `panel_titles`, the context of the figure must say what a panel shows. Means are drawn two to a row. Layers
    have a row for each kind of attention; heads, for each layer. Save the figure by `save_figure`.
    """
    with any_script():
        return _figure(panels, title, panel_titles)


def _figure(panels: Sequence[Panel], title: str, panel_titles: bool) -> Figure:
    grid = [
        list(line) for _, line in groupby(panels, lambda each: (each.layer and each.title, each.head and each.layer))
    ]
    if len(grid) == 1 and panels[0].layer is None:
        grid = [list(panels[first : first + 2]) for first in range(0, len(panels), 2)]
    top = TOP if panel_titles else TOP_WITHOUT_TITLE
    places = [[_Box.of(panel, panel_titles) for panel in line] for line in grid]
    columns = [
        _Box.around([line[number] for line in places if number < len(line)]) for number in range(max(map(len, places)))
    ]
    lines = [_Box.around(line) for line in places]
    width = sum(place.left + place.width + RIGHT for place in columns)
    heading = 0.2 + 0.22 * sum(math.ceil(_letters(line) * 0.11 / width) for line in title.splitlines())
    height = heading + sum(top + place.height + place.bottom for place in lines)
    figure = Figure(figsize=(width, height))
    figure.suptitle(title, y=1 - 0.1 / height, va="top", parse_math=False, wrap=True)
    above = heading
    for line, row in zip(lines, grid, strict=True):
        beside = 0.0
        for column, panel in zip(columns, row, strict=False):
            size = len(panel.columns) * CELL, len(panel.rows) * CELL
            corner = beside + column.left, height - above - top - size[1]
            rectangle = (corner[0] / width, corner[1] / height, size[0] / width, size[1] / height)
            _draw(panel, figure.add_axes(rectangle), panel_titles)
            beside += column.left + column.width + RIGHT
        above += top + line.height + line.bottom
    return figure


class _Box(NamedTuple):
    """Size of a panel and of its labels to the left and below, computed so that no layout engine is needed."""

    left: float
    width: float
    height: float
    bottom: float

    @classmethod
    def of(cls, panel: Panel, titled: bool) -> _Box:
        width = max(len(panel.columns) * CELL, _letters(panel.title) * 0.1 - RIGHT if titled else 0.0)
        height = len(panel.rows) * CELL
        left, bottom = (max(map(_letters, labels)) * LETTER for labels in (panel.rows, panel.columns))
        return cls(LEFT + left, width, height, max(BOTTOM + bottom, BAR_CELLS * CELL - height + 0.2))

    @classmethod
    def around(cls, places: Sequence[_Box]) -> _Box:
        return cls(*map(max, zip(*places, strict=True)))


def _letters(text: str) -> int:
    """The width of a text in Latin letters; East Asian wide characters count twice."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _draw(panel: Panel, axes: Axes, titled: bool) -> None:
    shown = np.ma.masked_equal(panel.weights, 0.0)  # masked positions have no attention at all
    image = axes.imshow(shown, cmap=COLOUR_MAP, vmin=0, vmax=_brightest(panel.weights), interpolation="nearest")
    axes.set_facecolor("white")
    if titled:
        axes.set_title(f"{panel.title}\n", fontsize=11, fontweight="bold", parse_math=False, y=1.0)
        below_title: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
        axes.annotate(panel.subtitle, (0.5, 1.0), (0, 3), xycoords="axes fraction", **below_title)
    # parse_math: pieces may hold dollar signs.
    axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=90, fontsize=9, parse_math=False)
    axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=9, parse_math=False)
    axes.tick_params(length=0)
    axes.set_xlabel(panel.column_axis)
    # A label that is longer than the panel extends below it, as the title is above.
    is_short = len(panel.rows) * CELL < _letters(panel.row_axis) * LETTER
    axes.set_ylabel(panel.row_axis, loc="top" if is_short else "center")
    height, inch = max(1.0, BAR_CELLS / len(panel.rows)), 1 / (len(panel.columns) * CELL)
    bar = axes.inset_axes((1 + max(0.02, 0.12 * inch), 1 - height, max(0.035, 0.12 * inch), height))
    extend = "max" if panel.weights.max() > _brightest(panel.weights) else "neither"
    axes.figure.colorbar(image, cax=bar, extend=extend).set_label("weight", labelpad=6)


def _brightest(weights: Float[np.ndarray, "rows columns"]) -> float:
    """The upper end of the colour scale: the largest weight in rows with more than one allowed column.

    A row with one allowed column has the weight 1 there, and would dim all others.
    """
    choices = weights[(weights > 0).sum(1) > 1]
    return float(choices.max()) if choices.size else 1.0
