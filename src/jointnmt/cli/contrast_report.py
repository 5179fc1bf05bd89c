"""The tables of `jointnmt contrast`, and its accuracies as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from jointnmt.cli.console import numeric
from jointnmt.evaluation.contrastive import PairedDifference, PairedDifferences, SuiteResult
from jointnmt.evaluation.contrastive_breakdowns import Accuracy, Breakdown
from jointnmt.evaluation.p_values import starred

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
OTHER_COLUMNS = ("other_right", "other_accuracy", "lost", "gained", "p_value")
"""Further columns for another model."""


@dataclass(frozen=True)
class OtherModel:
    """Another model, compared with the first."""

    run: str
    differences: PairedDifferences


def show(console: Console, run: str, result: SuiteResult, skipped: int, against: OtherModel | None = None) -> None:
    """Print the accuracies, overall and for each breakdown with groups, and those of another model."""
    _note(console, f"{result.suite.name}: {TITLES[result.suite.kind]}")
    _note(console, f"Compared: {SCORINGS[result.rule]}. A tie is wrong; ties: {result.ties:,}.")
    if skipped:
        _note(console, f"Items skipped, too long for the model: {skipped:,}.")
    console.print(_overall(run, result))
    if against is not None:
        console.print(_models(run, result, against))
    for breakdown in result.breakdowns:
        if breakdown.groups:
            differences = None if against is None else against.differences.breakdowns[breakdown.name]
            console.print(_table(result, breakdown, differences))
            if breakdown.left_out:
                what = f"{result.unit.capitalize()}s without {breakdown.name} in the suite, left out"
                _note(console, f"{what}: {breakdown.left_out:,}.")


def _note(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def suite_csv(result: SuiteResult, differences: PairedDifferences | None) -> Iterator[str]:
    """CSV lines: header, overall accuracy, and each group's, with those of another model."""
    yield _csv_line((*COLUMNS, *(() if differences is None else OTHER_COLUMNS)))
    overall = () if differences is None else _other_counts(differences.overall)
    yield _csv_line(("all", "", *_counts(result.accuracy), "", "", *overall))
    for breakdown in result.breakdowns:
        for group in breakdown.groups:
            known = group.frequency
            frequencies = ("", "") if known is None else (known.sense, known.relative)
            row = (breakdown.name, group.name, *_counts(group.accuracy), *frequencies)
            if differences is not None:
                row += _other_counts(differences.breakdowns[breakdown.name][group.name])
            yield _csv_line(row)


def _overall(run: str, result: SuiteResult) -> Table:
    table = Table(Column(Text(run), overflow="fold"), *numeric("right", "total", "accuracy"))
    if result.unit == "item":
        table.add_row("items: the reference beats all contrasts", *_figures(result.accuracy))
    table.add_row("pairs: the reference beats a contrast", *_figures(result.pairs))
    return table


def _models(run: str, result: SuiteResult, against: OtherModel) -> Table:
    """Accuracies of two models, and the significance of their difference."""
    difference = against.differences.overall
    headings = Column("model", overflow="fold"), *numeric("right", "total", "accuracy", "right alone", "p")
    table = Table(*headings, caption="p: exact two-sided sign-flip test over items")
    table.add_row(Text(run), *_figures(result.accuracy), f"{difference.lost:,}", "")
    table.add_row(
        Text(against.run), *_figures(difference.accuracy), f"{difference.gained:,}", starred(difference.p_value)
    )
    return table


def _table(result: SuiteResult, breakdown: Breakdown, differences: Mapping[str, PairedDifference] | None) -> Table:
    """Table of a breakdown; with another model, also its accuracy and the items that only one model has right."""
    corpus = result.suite.frequency_corpus
    of_corpus = f" in {corpus}" if corpus and breakdown.name == "frequency" else ""
    with_frequency = any(group.frequency is not None for group in breakdown.groups)
    names = ["right", "total", "accuracy"]
    if differences is not None:
        names += ["other's", "first alone", "other alone", "p"]
    if with_frequency:
        names += ["frequency", "relative"]
    headings = Column(breakdown.name, overflow="fold"), *numeric(*names)
    table = Table(*headings, title=Text(f"By {breakdown.name}{of_corpus}"))
    for group in breakdown.groups:
        row = list(_figures(group.accuracy))
        if differences is not None:
            difference = differences[group.name]
            row += [_figures(difference.accuracy)[-1], f"{difference.lost:,}", f"{difference.gained:,}"]
            row.append(starred(difference.p_value))
        if group.frequency is not None:
            relative = group.frequency.relative
            row += [f"{group.frequency.sense:,}", "" if relative is None else f"{relative:.3f}"]
        table.add_row(Text(group.name), *row)
    return table


def _figures(accuracy: Accuracy) -> tuple[str, str, str]:
    return f"{accuracy.right:,}", f"{accuracy.total:,}", f"{100 * accuracy.value:.2f}%"


def _counts(accuracy: Accuracy) -> tuple[int, int, float]:
    return accuracy.right, accuracy.total, accuracy.value


def _other_counts(difference: PairedDifference) -> tuple[int, float, int, int, float]:
    accuracy = difference.accuracy
    return accuracy.right, accuracy.value, difference.lost, difference.gained, difference.p_value


def _csv_line(values: tuple[object, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
