"""Reads tables with quoted cells, as spreadsheets save them (.csv), as lines with tabs between the cells."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

DELIMITERS = (",", ";", "\t")
"""Delimiters of cells: a spreadsheet writes semicolons where the comma is the decimal sign, and tabs if asked to."""

QUOTE = '"'

MOSTLY = 0.9
"""Share of quoted cells above which a table counts as quoted."""

MOST_LINES = 100
"""Most lines of a row with line breaks in its cells; beyond that, the quote counts as unclosed."""


def delimiter_of(lines: Sequence[str]) -> str:
    """The delimiter of these first lines: the one that splits most rows into the same number of cells, two or more."""

    def regularity(delimiter: str) -> float:
        widths = [text.count("\t") + 1 for _, text in rows_of(lines, delimiter, "")]
        most = max(set(widths), key=widths.count, default=1)
        return widths.count(most) / len(widths) if most > 1 else 0.0

    return max(DELIMITERS, key=regularity)


def is_quoted(lines: Sequence[str]) -> bool:
    """Whether (nearly) all tab-separated cells of these lines are quoted."""
    cells = [cell for line in lines for cell in line.split("\t")]
    return sum(len(cell) > 1 and cell[0] == cell[-1] == QUOTE for cell in cells) > MOSTLY * max(1, len(cells))


def rows_of(lines: Iterable[str], delimiter: str, unreadable: str) -> Iterator[tuple[int, str]]:
    """The rows of a table, each with the number of its first line, from 1.

    White space within a cell, including line breaks, becomes a space. A line with unclosed quotes, or quotes that do
    not enclose a cell, becomes `unreadable`, and the next line begins a row.

    Args:
        lines: lines of the file.
        delimiter: delimiter of cells.
        unreadable: replacement of such a line.
    """
    rest, ahead = iter(lines), deque[str]()  # ahead: read in search of the end of a quote

    def following() -> str | None:
        return ahead.popleft() if ahead else next(rest, None)

    number = 0
    while (line := following()) is not None:
        number += 1
        row, cells = [line], _cells(line, delimiter)
        while cells is None and len(row) < MOST_LINES and (more := following()) is not None:
            row.append(more)
            cells = _cells("\n".join(row), delimiter) if QUOTE in more else None
        if cells is None:
            ahead.extendleft(reversed(row[1:]))
            yield number, unreadable
        else:
            yield number, "\t".join(" ".join(cell.split()) for cell in cells)
            number += len(row) - 1


def _cells(row: str, delimiter: str) -> list[str] | None:
    """The cells of a row; None: its quotes do not enclose cells."""
    try:
        found = list(csv.reader([row], delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else [] if not found else None
