"""Figures of the lexical study: lines over layers, and heat maps by layer and group."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from jointnmt.analysis.attention_figures import COLOUR_MAP
from jointnmt.analysis.buckets import BucketValue
from jointnmt.analysis.corpus import Analysis
from jointnmt.analysis.figures import analysis_figure
from jointnmt.analysis.lexical import LayerMeasurement, LexicalMeasure
from jointnmt.analysis.pieces import Grouping
from jointnmt.analysis.states import EMBEDDING, INPUT, REDUCED, SIDES, Side
from jointnmt.extras import extra

with extra("report"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES: dict[LexicalMeasure, str] = {
    "accuracy": "Pieces that probes recover",
    "similarity": "Similarity of states to embeddings",
    "gate": "Gates of lexical shortcuts",
    "sparseness": "Sparseness of gates",
}
MEASURES: dict[LexicalMeasure, str] = {
    "accuracy": "accuracy",
    "similarity": "cosine",
    "gate": "mean gate (1: lexical)",
    "sparseness": "Hoyer sparseness",
}
CELL_WIDTH, CELL_HEIGHT, MARGIN = 0.72, 0.32, 1.3
"""Sizes of heat maps, in inches."""
LEAST_WIDTH = 7.2

Systems = Mapping[str, Sequence[LayerMeasurement]]


@dataclass(frozen=True)
class Topic:
    """Content of one figure and its file of numbers."""

    measure: LexicalMeasure
    side: Side
    grouping: Grouping
    stacks: Mapping[tuple[str, str], Mapping[str, Sequence[BucketValue]]]
    """Values of the groups by layer, for each system and stack."""

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.measure}-{self.side}" + ("" if self.grouping == "all" else f"-by-{self.grouping}")

    @property
    def unit(self) -> str:
        """Unit of a group's size."""
        if self.measure == "similarity":
            return "sentences"
        return "words" if self.grouping == "class" else "pieces"

    @property
    def title(self) -> str:
        """Title of the figure."""
        groups = {"all": "layer", "frequency": "layer and frequency", "class": "layer and class of the word"}
        return f"{TITLES[self.measure]}: {self.side} pieces, by {groups[self.grouping]}"


def topics(systems: Systems) -> Iterator[Topic]:
    """The topics that have measurements."""
    for measure in TITLES:
        for side in SIDES:
            for grouping in get_args(Grouping):
                stacks: dict[tuple[str, str], dict[str, list[BucketValue]]] = {}
                for system, numbers in systems.items():
                    for each in numbers:
                        if (each.measure, each.side, each.grouping) == (measure, side, grouping):
                            layers = stacks.setdefault((system, each.stack), {})
                            layers.setdefault(each.layer, []).append(each.value)
                if stacks:
                    yield Topic(measure, side, grouping, stacks)


def topic_figure(topic: Topic) -> Figure:
    """Figure with lines over layers for each system and stack; with groups, a heat map for each."""
    stacks = _above_embeddings(topic)
    if topic.grouping != "all":
        return _tables(topic, stacks)
    layers = sorted({layer for each in stacks.values() for layer in each}, key=_layer_key)
    lines = {}
    for (system, stack), each in stacks.items():
        size = max(values[0].size for values in each.values())
        lines[f"{system}: {stack}"] = [
            BucketValue(layer, size, None) if layer not in each else replace(each[layer][0], bucket=layer)
            for layer in layers
        ]
    return analysis_figure(Analysis(topic.name, topic.title, "layer", MEASURES[topic.measure], topic.unit, lines))


def topic_csv(topic: Topic) -> str:
    """CSV with a row for each system, stack, layer and group; an empty group has no value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["system", "stack", "layer", "group", f"size ({topic.unit})", topic.measure, "low", "high"])
    for (system, stack), layers in topic.stacks.items():
        for layer, values in layers.items():
            for each in values:
                numbers = ("" if x is None else f"{x:.6g}" for x in (each.value, each.low, each.high))
                writer.writerow([system, stack, layer, each.bucket, each.size, *numbers])
    return text.getvalue()


def _above_embeddings(topic: Topic) -> Mapping[tuple[str, str], Mapping[str, Sequence[BucketValue]]]:
    """The stacks with the embeddings as lowest layer, if these are measured."""
    embeddings = {system: layers for (system, stack), layers in topic.stacks.items() if stack == EMBEDDING}
    return {
        (system, stack): {**embeddings.get(system, {}), **layers}
        for (system, stack), layers in topic.stacks.items()
        if stack != EMBEDDING
    }


def _layer_key(layer: str) -> tuple[int, int]:
    """Sort key of layers, from the bottom."""
    if layer in (EMBEDDING, INPUT, REDUCED):
        return {EMBEDDING: 0, INPUT: 1, REDUCED: 3}[layer], 0
    return 2, int(layer)


def _tables(topic: Topic, stacks: Mapping[tuple[str, str], Mapping[str, Sequence[BucketValue]]]) -> Figure:
    heights = [len(layers) * CELL_HEIGHT + MARGIN for layers in stacks.values()]
    columns = max(len(values) for layers in stacks.values() for values in layers.values())
    figure = Figure(figsize=(max(columns * CELL_WIDTH + 2.4, LEAST_WIDTH), sum(heights) + 0.4), layout="constrained")
    axes = figure.subplots(len(stacks), 1, height_ratios=heights, squeeze=False)[:, 0]
    known = [each.value for layers in stacks.values() for row in layers.values() for each in row]
    span = [value for value in known if value is not None] or [0.0, 1.0]
    for ((system, stack), layers), place in zip(stacks.items(), axes, strict=True):
        _table(place, f"{system}: {stack}", layers, topic, (min(span), max(span)))
    figure.colorbar(axes[0].images[0], ax=list(axes), label=MEASURES[topic.measure], fraction=0.05, aspect=30)
    figure.suptitle(topic.title, fontsize=11)
    return figure


def _table(
    axes: Axes, title: str, layers: Mapping[str, Sequence[BucketValue]], topic: Topic, span: tuple[float, float]
) -> None:
    names = sorted(layers, key=_layer_key)
    values = np.array([[np.nan if each.value is None else each.value for each in layers[name]] for name in names])
    axes.imshow(values, cmap=COLOUR_MAP, vmin=span[0], vmax=span[1], aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            dark = value < (span[0] + span[1]) / 2
            axes.text(
                column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white" if dark else "black"
            )
    labels = [f"{each.bucket.replace(' (', chr(10) + '(')}\nn = {each.size:,}" for each in layers[names[0]]]
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(length=0)
    axes.set_ylabel("layer")
    grouped = "bin (training frequencies)" if topic.grouping == "frequency" else "class"
    axes.set_xlabel(f"{grouped} and size, in {topic.unit}", fontsize=9)
    axes.set_title(title, fontsize=10, parse_math=False)
