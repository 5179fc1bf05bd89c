"""Tables with quotes around cells, as spreadsheets save them (.csv), as lines with tabs between the cells."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

DELIMITERS = (",", ";", "\t")
"""Between cells: a spreadsheet writes semicolons where a comma stands in numbers, and tabs if it is told to."""

QUOTE = '"'

MOSTLY = 0.9
"""Share of cells in quotes, above which all of a table's are."""

MOST_LINES = 100
"""That a row may have, with line breaks in its cells: beyond that, a quote has no end."""


def delimiter_of(lines: Sequence[str]) -> str:
    """What stands between the cells of these first lines: what splits most rows into equally many, two or more."""

    def regularity(delimiter: str) -> float:
        widths = [text.count("\t") + 1 for _, text in rows_of(lines, delimiter, "")]
        most = max(set(widths), key=widths.count, default=1)
        return widths.count(most) / len(widths) if most > 1 else 0.0

    return max(DELIMITERS, key=regularity)


def is_quoted(lines: Sequence[str]) -> bool:
    """Whether (nearly) all cells of these lines, with tabs between them, stand in quotes."""
    cells = [cell for line in lines for cell in line.split("\t")]
    return sum(len(cell) > 1 and cell[0] == cell[-1] == QUOTE for cell in cells) > MOSTLY * max(1, len(cells))


def rows_of(lines: Iterable[str], delimiter: str, unreadable: str) -> Iterator[tuple[int, str]]:
    """The rows of a table, each with the number of its first line, from 1.

    White space within a cell, line breaks too, becomes a space. A line whose quotes do not end, or are no quotes of a
    cell, becomes `unreadable`, and the next line begins a row.

    Args:
        lines: of the file.
        delimiter: between cells.
        unreadable: what stands for such a line.
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
    """The cells of a row; None: its quotes are not those of cells."""
    try:
        found = list(csv.reader([row], delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else [] if not found else None
