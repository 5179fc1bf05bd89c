"""What `jointnmt contrast` prints for people, and its accuracies as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jointnmt.analysis.figures import SIGNIFICANT
from jointnmt.evaluation.contrastive import Accuracy, Breakdown, Difference, Verdict

TITLES = {
    "contrawsd": "ContraWSD",
    "mucow": "MuCoW",
    "lingeval97": "LingEval97",
    "lines": "minimal pairs, line by line",
}
SCORINGS = {
    "length-normalised": "length-normalised log-probabilities: means over tokens, end mark included",
    "summed": "summed log-probabilities, not normalised by length",
}
COLUMNS = ("breakdown", "group", "right", "total", "accuracy", "frequency", "relative_frequency")


def show(console: Console, run: str, verdict: Verdict, skipped: int) -> None:
    """Print the accuracies: overall, then each break-down that has groups."""
    _note(console, f"{verdict.suite.name}: {TITLES[verdict.suite.kind]}")
    _note(console, f"Compared: {SCORINGS[verdict.rule]}. A tie is wrong; ties: {verdict.ties:,}.")
    if skipped:
        _note(console, f"Items left out, as they are too long for the model: {skipped:,}.")
    console.print(_overall(run, verdict))
    for breakdown in verdict.breakdowns:
        if breakdown.groups:
            console.print(_table(verdict, breakdown))
            if breakdown.left_out:
                what = f"{verdict.unit.capitalize()}s left out, as the suite tells no {breakdown.name} of them"
                _note(console, f"{what}: {breakdown.left_out:,}.")


def show_difference(console: Console, run: str, other: str, verdict: Verdict, difference: Difference) -> None:
    """Print how another model decides, and whether that is more than chance."""
    table = Table(caption="p: of a split as uneven by chance; exact, of both sides (McNemar)")
    table.add_column("model", overflow="fold")
    for name in ("right", "total", "accuracy", "right alone", "p"):
        table.add_column(name, justify="right")
    table.add_row(Text(run), *_figures(verdict.accuracy), f"{difference.lost:,}", "")
    star = "*" if difference.p_value < SIGNIFICANT else ""
    table.add_row(
        Text(other), *_figures(difference.accuracy), f"{difference.gained:,}", f"{difference.p_value:.3f}{star}"
    )
    console.print(table)


def _note(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def verdict_csv(verdict: Verdict) -> Iterator[str]:
    """Lines of CSV: a head, the accuracy overall, and each group's."""
    yield _csv_line(COLUMNS)
    yield _csv_line(("all", "", *_counts(verdict.accuracy), "", ""))
    for breakdown in verdict.breakdowns:
        for group in breakdown.groups:
            known = group.frequency
            frequencies = ("", "") if known is None else (known.sense, known.relative)
            yield _csv_line((breakdown.name, group.name, *_counts(group.accuracy), *frequencies))


def _overall(run: str, verdict: Verdict) -> Table:
    table = Table()
    table.add_column(Text(run), overflow="fold")
    for name in ("right", "total", "accuracy"):
        table.add_column(name, justify="right")
    if verdict.unit == "item":
        table.add_row("items: the reference beats all contrasts", *_figures(verdict.accuracy))
    table.add_row("pairs: the reference beats a contrast", *_figures(verdict.pairs))
    return table


def _table(verdict: Verdict, breakdown: Breakdown) -> Table:
    corpus = verdict.suite.frequency_corpus
    of_corpus = f" in {corpus}" if corpus and breakdown.name == "frequency" else ""
    table = Table(title=Text(f"By {breakdown.name}{of_corpus}"))
    table.add_column(breakdown.name, overflow="fold")
    with_frequency = any(group.frequency is not None for group in breakdown.groups)
    for name in ("right", "total", "accuracy", *(("frequency", "relative") if with_frequency else ())):
        table.add_column(name, justify="right")
    for group in breakdown.groups:
        row = list(_figures(group.accuracy))
        if group.frequency is not None:
            relative = group.frequency.relative
            row += [f"{group.frequency.sense:,}", "" if relative is None else f"{relative:.3f}"]
        table.add_row(Text(group.name), *row)
    return table


def _figures(accuracy: Accuracy) -> tuple[str, str, str]:
    return f"{accuracy.right:,}", f"{accuracy.total:,}", f"{100 * accuracy.value:.2f}%"


def _counts(accuracy: Accuracy) -> tuple[int, int, float]:
    return accuracy.right, accuracy.total, accuracy.value


def _csv_line(values: tuple[object, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
