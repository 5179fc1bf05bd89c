"""Attention of one translation, as a picture for people and as numbers for programs."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from jointnmt.extras import extra
from jointnmt.models.interface import AttentionMaps
from jointnmt.text.special import BOS, EOS

with extra("report"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR_MAP = "cividis"  # perceptually uniform, and alike to people with a colour vision deficiency
CELL = 0.26
LETTER = 0.085
LEFT, RIGHT, TOP, BOTTOM = 0.5, 0.95, 0.65, 0.5
"""In inches, as all lengths here: around a panel, without its labels, for the axes' names, colour bar and title."""
BAR_CELLS = 5
"""Least height of a colour bar, in rows: below it, the numbers of a bar would cover each other."""

By = Literal["mean", "layer", "head"]


@dataclass(frozen=True)
class View:
    """What of a model's attention is looked at: means over layers and heads, or each of them; of all tokens, or one."""

    by: By = "mean"
    source: int | None = None
    """The position of a source token, from 0, the end mark included: of attention from source to source, its row
    alone, and on a grid that row under each target token (Li et al. 2020, Figure 5, left). None: all rows, on a grid
    averaged over target positions."""
    target: int | None = None
    """Likewise of a target token that has been read, 0 being the begin mark (Figure 5, right)."""


@dataclass(frozen=True)
class Panel:
    """One attention matrix: how much each row looks at each column; a row sums to 1."""

    title: str
    layer: int | None
    """From 1; None: averaged over, as `averaged_over` says."""
    head: int | None
    averaged_over: str
    row_axis: str
    rows: tuple[str, ...]
    column_axis: str
    columns: tuple[str, ...]
    weights: Float[np.ndarray, "rows columns"]

    @property
    def subtitle(self) -> str:
        """Which layer and head, and what is averaged over."""
        places = [f"{name} {value}" for name, value in (("layer", self.layer), ("head", self.head)) if value]
        return ", ".join([*places, *([f"mean over {self.averaged_over}"] if self.averaged_over else [])])


class _Axis(NamedTuple):
    name: str
    tokens: tuple[str, ...]


class _Kind(NamedTuple):
    """One kind of attention in all layers and heads: `[layers, heads, rows, columns]`, or on a grid
    `[layers, heads, other, rows, columns]`, `other` being the axis that is not attended along."""

    title: str
    layers: Sequence[Tensor]
    rows: _Axis
    columns: _Axis
    chosen: int | None = None
    """The row to show."""
    other: _Axis | None = None


def attention_panels(
    maps: AttentionMaps, source_pieces: Sequence[str], target_pieces: Sequence[str], view: View = View()
) -> list[Panel]:
    """What a model looked at in one teacher-forced translation, as matrices.

    `maps` are of a batch of this one sentence pair. The pieces come without begin and end marks, which are added here:
    the rows of an alignment are what the model predicts, the pieces and the end mark; the target's attention to itself
    is among what the model has read by then, the begin mark and the pieces. An alignment has both axes, and is shown
    whole whatever token is chosen.

    Raises:
        ValueError: if the maps are not of a single sentence pair of these lengths.
    """
    source = _Axis("source", (*source_pieces, EOS))
    read = _Axis("target read", (BOS, *target_pieces))
    predicted = _Axis("target predicted", (*target_pieces, EOS))
    kinds = [
        _Kind("Alignment (cross-attention)", maps.cross, predicted, source),
        _Kind("Encoder self-attention", maps.encoder, source, source, view.source),
        _Kind("Decoder self-attention", maps.decoder, read, read, view.target),
        _Kind("PreNet self-attention", maps.prenet, source, source, view.source),
        _Kind("Source attention", maps.source, source, source, view.source, read),
        _Kind("Target attention", maps.target, read, read, view.target, source),
    ]
    panels = [panel for kind in kinds if kind.layers for panel in _kind_panels(kind, view.by)]
    if maps.alignment is not None and not maps.cross:
        reduction = ("Alignment (reduction)", None, None, "features", *predicted, *source)
        panels.insert(0, Panel(*reduction, _numbers(maps.alignment)))
    for panel in panels:
        if panel.weights.shape != (len(panel.rows), len(panel.columns)):
            expected = f"{len(panel.rows)} rows and {len(panel.columns)} columns"
            raise ValueError(f"{panel.title} has the shape {panel.weights.shape}, its pieces make {expected}")
    return panels


def attention_figure(panels: Sequence[Panel], title: str = "") -> Figure:
    """The panels with their pieces as labels, each with a colour bar of its own.

    Means stand two in a line. Layers have a line for each kind of attention; heads, for each layer.
    """
    grid = [
        list(line) for _, line in groupby(panels, lambda each: (each.layer and each.title, each.head and each.layer))
    ]
    if len(grid) == 1 and panels[0].layer is None:
        grid = [list(panels[first : first + 2]) for first in range(0, len(panels), 2)]
    places = [[_Place.of(panel) for panel in line] for line in grid]
    columns = [
        _Place.around([line[number] for line in places if number < len(line)])
        for number in range(max(map(len, places)))
    ]
    lines = [_Place.around(line) for line in places]
    width = sum(place.left + place.width + RIGHT for place in columns)
    heading = 0.2 + 0.22 * sum(math.ceil(_letters(line) * 0.11 / width) for line in title.splitlines())
    height = heading + sum(TOP + place.height + place.bottom for place in lines)
    figure = Figure(figsize=(width, height))
    figure.suptitle(title, y=1 - 0.1 / height, va="top", parse_math=False, wrap=True)
    above = heading
    for line, row in zip(lines, grid, strict=True):
        beside = 0.0
        for column, panel in zip(columns, row, strict=False):
            size = len(panel.columns) * CELL, len(panel.rows) * CELL
            corner = beside + column.left, height - above - TOP - size[1]
            rectangle = (corner[0] / width, corner[1] / height, size[0] / width, size[1] / height)
            _draw(panel, figure.add_axes(rectangle))
            beside += column.left + column.width + RIGHT
        above += TOP + line.height + line.bottom
    return figure


def attention_numbers(
    maps: AttentionMaps, source_pieces: Sequence[str], target_pieces: Sequence[str], view: View = View()
) -> dict[str, Any]:
    """The panels as JSON-compatible values, and the attention of both axes of a grid without averaging the other axis.

    `source_attention[t][s]` are the weights of source position s over the source under target position t;
    `target_attention[s][t]` those of target position t over what was read by then, under source position s. Both are
    averaged over layers and heads.
    """
    panels = attention_panels(maps, source_pieces, target_pieces, view)
    values: dict[str, Any] = {"source": list(source_pieces), "target": list(target_pieces)}
    values["panels"] = [{**asdict(panel), "weights": _rounded(panel.weights)} for panel in panels]
    for name, layers in (("source_attention", maps.source), ("target_attention", maps.target)):
        if layers:
            values[name] = _rounded(np.mean([_numbers(layer).mean(0) for layer in layers], 0))
    return values


def _kind_panels(kind: _Kind, by: By) -> Iterator[Panel]:
    weights = np.stack([_numbers(layer) for layer in kind.layers])
    title, rows, averaged_over = kind.title, kind.rows, []
    if kind.chosen is not None:
        title += f" of “{rows.tokens[kind.chosen]}”"
        weights = weights[..., kind.chosen, :]  # [layers, heads, columns] or [layers, heads, other, columns]
        rows = kind.other._replace(name=f"under {kind.other.name}") if kind.other else _Axis("", ("",))
        weights = weights if kind.other else weights[:, :, None]
    elif kind.other:
        averaged_over = [f"{kind.other.name.split()[0]} positions"]
        weights = weights.mean(2)

    def panel(layer: int | None, head: int | None, over: Sequence[str], matrix: Float[np.ndarray, "_ _"]) -> Panel:
        return Panel(title, layer, head, ", ".join([*over, *averaged_over]), *rows, *kind.columns, matrix)

    if by == "mean":
        yield panel(None, None, ["layers", "heads"], weights.mean((0, 1)))
        return
    for layer, heads in enumerate(weights, start=1):
        if by == "layer":
            yield panel(layer, None, ["heads"], heads.mean(0))
            continue
        for head, matrix in enumerate(heads, start=1):
            yield panel(layer, head, [], matrix)


class _Place(NamedTuple):
    """The size of a panel, and the room for labels left of it and below. All of it is known: no need to try layouts."""

    left: float
    width: float
    height: float
    bottom: float

    @classmethod
    def of(cls, panel: Panel) -> _Place:
        width = max(len(panel.columns) * CELL, _letters(panel.title) * 0.1 - RIGHT)
        height = len(panel.rows) * CELL
        left, bottom = (max(map(_letters, labels)) * LETTER for labels in (panel.rows, panel.columns))
        return cls(LEFT + left, width, height, max(BOTTOM + bottom, BAR_CELLS * CELL - height + 0.2))

    @classmethod
    def around(cls, places: Sequence[_Place]) -> _Place:
        return cls(*map(max, zip(*places, strict=True)))


def _letters(text: str) -> int:
    """The width of a text: letters such as those of Chinese are twice as wide."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _draw(panel: Panel, axes: Axes) -> None:
    shown = np.ma.masked_equal(panel.weights, 0.0)  # the future, say: not weak attention, but none
    image = axes.imshow(shown, cmap=COLOUR_MAP, vmin=0, vmax=_brightest(panel.weights), interpolation="nearest")
    axes.set_facecolor("white")
    axes.set_title(f"{panel.title}\n", fontsize=11, fontweight="bold", parse_math=False, y=1.0)
    below_title: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
    axes.annotate(panel.subtitle, (0.5, 1.0), (0, 3), xycoords="axes fraction", **below_title)
    # Pieces may hold dollar signs, which would begin a formula.
    axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=90, fontsize=9, parse_math=False)
    axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=9, parse_math=False)
    axes.tick_params(length=0)
    axes.set_xlabel(panel.column_axis)
    axes.set_ylabel(panel.row_axis)
    height = max(1.0, BAR_CELLS / len(panel.rows))
    bar = axes.inset_axes((1.02, 1 - height, 0.035, height))
    extend = "max" if panel.weights.max() > _brightest(panel.weights) else "neither"
    axes.figure.colorbar(image, cax=bar, extend=extend).set_label("weight", labelpad=6)


def _brightest(weights: Float[np.ndarray, "rows columns"]) -> float:
    """The weight of the brightest colour: the largest of the rows that have a choice.

    A row with one column to look at gives it the weight 1, and would leave the others of its panel in the dark.
    """
    choices = weights[(weights > 0).sum(1) > 1]
    return float(choices.max()) if choices.size else 1.0


def _numbers(weights: Tensor) -> Float[np.ndarray, "*axes"]:
    """The weights of the batch's one sentence."""
    if weights.shape[0] != 1:
        raise ValueError(f"the attention of one sentence is drawn, and this is of a batch of {weights.shape[0]}")
    return weights[0].detach().float().cpu().numpy()


def _rounded(weights: Float[np.ndarray, "*axes"]) -> Any:
    return weights.astype(float).round(6).tolist()
