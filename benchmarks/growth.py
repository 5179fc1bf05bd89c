"""Growth of time and memory with the length and the number of sentences: rows, and a figure of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.comparing import Case, Row, compare
from benchmarks.decoding import DecodingCase
from benchmarks.training import Implementation, TrainingCase
from jointnmt.analysis.figures import COLOURS, MARKERS, STYLES

LENGTHS = (8, 16, 32, 64, 128)
SENTENCES = (1, 2, 4, 8, 16, 32)
FIXED_SENTENCES, FIXED_LENGTH = 2, 23
"""Number of sentences at each length; length at each number of sentences."""
MIB = 2**20


def growth(
    task: str,
    names: tuple[str, str, str],
    implementations: Sequence[Implementation],
    points: tuple[Sequence[int], Sequence[int]],
    rounds: int,
    threads: int,
) -> Iterator[Row]:
    """Rows of all points; every source and target of a point has the same length.

    Args:
        task: training or decoding.
        names: family, size, precision.
        implementations: those that take turns at each point.
        points: lengths, and numbers of sentences.
        rounds: rounds per point.
        threads: threads of torch.
    """
    along_length = [("length", length, FIXED_SENTENCES) for length in points[0]]
    along_sentences = [("sentences", FIXED_LENGTH, sentences) for sentences in points[1]]
    for axis, length, sentences in along_length + along_sentences:
        cases = [case(task, names, implementation, length, sentences) for implementation in implementations]
        for row in compare(cases, rounds, threads, profiled=False):
            yield {"task": task, "axis": axis, "length": length, "sentences": sentences, **row}


def case(task: str, names: tuple[str, str, str], implementation: Implementation, length: int, sentences: int) -> Case:
    """One point: an update on `sentences` pairs of one length, or their translation."""
    lengths = np.full(sentences, length, dtype=np.int32)
    if task == "decoding":
        return DecodingCase(*names, implementation, (lengths,), (lengths,))
    tokens, cells = sentences * length, sentences * length**2
    return TrainingCase(*names, implementation, lengths, lengths, tokens, cells, 1)


def growth_figure(rows: Sequence[Row], title: str) -> Figure:
    """Seconds and memory (beyond that before the first run) by length and by number, all axes logarithmic."""
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    panels = figure.subplots(2, 2)
    for column, (axis, label) in enumerate(
        (
            ("length", f"tokens of each side, {FIXED_SENTENCES} sentences"),
            ("sentences", f"sentences of {FIXED_LENGTH} tokens"),
        )
    ):
        for line, measure in enumerate(("seconds", "memory (MiB)")):
            panel = panels[line][column]
            for number, (name, points) in enumerate(_lines(rows, axis, measure).items()):
                look: dict[str, Any] = {
                    "color": COLOURS[number % len(COLOURS)],
                    "marker": MARKERS[number % len(MARKERS)],
                    "linestyle": STYLES[number % len(STYLES)],
                }
                panel.plot(*zip(*points, strict=True), label=name, markersize=4, linewidth=1.3, **look)
            ticks = sorted({row[axis] for row in rows if row["axis"] == axis})
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(ticks, [str(tick) for tick in ticks])
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.set_xlabel(label)
            panel.set_ylabel(measure)
            panel.grid(color="0.9", linewidth=0.8)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def _lines(rows: Sequence[Row], axis: str, measure: str) -> dict[str, list[tuple[int, float]]]:
    """The points of each family and implementation."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["axis"] == axis and "skipped" not in row:
            grown = max(row["peak_bytes"] - row["base_bytes"], MIB) / MIB
            name = f"{row['family']}, {row['implementation']}"
            lines.setdefault(name, []).append((row[axis], row["seconds"] if measure == "seconds" else grown))
    return lines
