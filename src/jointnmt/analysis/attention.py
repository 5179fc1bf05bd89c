"""Attention of one translation, as a picture for people and as numbers for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from jointnmt.models.interface import AttentionMaps
from jointnmt.text.special import BOS, EOS

COLOUR_MAP = "cividis"  # perceptually uniform, and alike to people with a colour vision deficiency
CELL_INCHES = 0.26
MARGIN_INCHES = 1.9


@dataclass(frozen=True)
class Panel:
    """One attention matrix: how much each row looks at each column; a row sums to 1."""

    title: str
    averaged_over: str
    row_axis: str
    rows: tuple[str, ...]
    column_axis: str
    columns: tuple[str, ...]
    weights: Float[np.ndarray, "rows columns"]


def attention_panels(maps: AttentionMaps, source_pieces: Sequence[str], target_pieces: Sequence[str]) -> list[Panel]:
    """What a model looked at in one teacher-forced translation: matrices, averaged over everything but two axes.

    `maps` are of a batch of this one sentence pair. The pieces come without begin and end marks, which are added here:
    the rows of an alignment are what the model predicts, the pieces and the end mark; the target's attention to itself
    is among what the model has read by then, the begin mark and the pieces.

    Raises:
        ValueError: if the maps are not of a single sentence pair of these lengths.
    """
    source = ("source", (*source_pieces, EOS))
    read = ("target read", (BOS, *target_pieces))
    predicted = ("target predicted", (*target_pieces, EOS))
    heads, over_target, over_source = (
        "layers, heads",
        "layers, heads, target positions",
        "layers, heads, source positions",
    )
    candidates = [
        ("Alignment", "layers, heads" if maps.cross else "features", predicted, source, alignment_of(maps)),
        ("Encoder self-attention", heads, source, source, layer_mean(maps.encoder, 0)),
        ("Decoder self-attention", heads, read, read, layer_mean(maps.decoder, 0)),
        ("PreNet self-attention", heads, source, source, layer_mean(maps.prenet, 0)),
        ("Source attention", over_target, source, source, layer_mean(maps.source, 0, 1)),
        ("Target attention", over_source, read, read, layer_mean(maps.target, 0, 1)),
    ]
    panels = [
        Panel(title, averaged_over, *rows, *columns, weights)
        for title, averaged_over, rows, columns, weights in candidates
        if weights is not None
    ]
    for panel in panels:
        if panel.weights.shape != (len(panel.rows), len(panel.columns)):
            expected = f"{len(panel.rows)} rows and {len(panel.columns)} columns"
            raise ValueError(f"{panel.title} has the shape {panel.weights.shape}, its pieces make {expected}")
    return panels


def alignment_of(maps: AttentionMaps) -> Float[np.ndarray, "T S"] | None:
    """The alignment of the batch's one sentence; None if the model wrote none."""
    return None if maps.alignment is None else _numbers(maps.alignment)


def layer_mean(layers: Sequence[Tensor], *axes: int) -> Float[np.ndarray, "*axes"] | None:
    """The batch's one sentence's weights, averaged over layers and over `axes` of a layer's weights (0: heads)."""
    if not layers:
        return None
    weights = _numbers(torch.stack([layer.detach().float() for layer in layers]).mean(0))
    return np.asarray(weights.mean(axes))


def attention_figure(panels: Sequence[Panel], title: str = "") -> Figure:
    """The panels side by side (four: two by two), each with its pieces as labels and a colour bar of its own."""
    columns = 2 if len(panels) == 4 else len(panels)
    grid = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    widths = [max(len(row[i].columns) for row in grid) * CELL_INCHES + MARGIN_INCHES for i in range(columns)]
    heights = [max(len(panel.rows) for panel in row) * CELL_INCHES + MARGIN_INCHES for row in grid]
    figure = Figure(figsize=(sum(widths), sum(heights) + 0.5), layout="constrained")
    axes = figure.subplots(len(grid), columns, width_ratios=widths, height_ratios=heights, squeeze=False)
    for panel, place in zip(panels, axes.flat, strict=True):
        _draw(panel, place)
    figure.suptitle(title, parse_math=False, wrap=True)
    return figure


def attention_numbers(
    maps: AttentionMaps, source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> dict[str, Any]:
    """The panels as JSON-compatible values, and the attention of both axes of a grid without averaging the other axis.

    `source_attention[t][s]` are the weights of source position s over the source under target position t;
    `target_attention[s][t]` those of target position t over what was read by then, under source position s.
    """
    panels = attention_panels(maps, source_pieces, target_pieces)
    values: dict[str, Any] = {"source": list(source_pieces), "target": list(target_pieces)}
    values["panels"] = [{**asdict(panel), "weights": _rounded(panel.weights)} for panel in panels]
    for name, layers in (("source_attention", maps.source), ("target_attention", maps.target)):
        weights = layer_mean(layers, 0)
        if weights is not None:
            values[name] = _rounded(weights)
    return values


def _draw(panel: Panel, axes: Axes) -> None:
    shown = np.ma.masked_equal(panel.weights, 0.0)  # the future, say: not weak attention, but none
    image = axes.imshow(shown, cmap=COLOUR_MAP, vmin=0, vmax=_brightest(panel.weights), interpolation="nearest")
    axes.set_facecolor("white")
    axes.set_title(f"{panel.title}\n", fontsize=11, fontweight="bold")
    below_title: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "bottom", "fontsize": 8}
    axes.text(0.5, 1.01, f"mean over {panel.averaged_over}", **below_title)
    # Pieces may hold dollar signs, which would begin a formula.
    axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=90, fontsize=9, parse_math=False)
    axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=9, parse_math=False)
    axes.tick_params(length=0)
    axes.set_xlabel(panel.column_axis)
    axes.set_ylabel(panel.row_axis)
    bar = axes.inset_axes((1.02, 0.0, 0.035, 1.0))
    extend = "max" if panel.weights.max() > _brightest(panel.weights) else "neither"
    axes.figure.colorbar(image, cax=bar, extend=extend, label="weight")


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
