"""Columns or keys of source and target in a file of pairs, and detection of a header."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jointnmt.bounded_yaml import shorten
from jointnmt.data.pairs import json_value
from jointnmt.errors import ConfigurationError
from jointnmt.text.invisible import has_surrogate
from jointnmt.text.languages import languages_by_name

HEADINGS = frozenset(
    {"source", "target", "src", "tgt", "trg", "input", "output", "from", "to", "id", "score", "lang", "language"}
    | {"sentence", "sentences", "text", "texts", "translation", "translations", "original", "segment"}
)
"""Words of headers, besides codes and names of languages."""

MOST_WORDS = 3
"""Most words of a heading."""

TEXT_SHARE, DISTINCT_SHARE, SPACED_SHARE = 0.8, 0.4, 0.3
"""Least shares of cells with letters, of distinct cells, and of cells with spaces or non-ASCII letters, in a column of
sentences."""


@dataclass(frozen=True)
class PairFields:
    """Fields of source and target in a line."""

    fields: tuple[str, str] = ("0", "1")
    """Column numbers from 0, or keys, dots for nested ones."""
    columns: int | None = None
    """Number of columns of a table; None: the lines are JSON."""
    note: str = ""
    """Note on the fields that are not read."""
    languages: tuple[str | None, str | None] = (None, None)
    """Languages that the header, the keys or the file itself name."""

    def pick(self, content: str) -> tuple[str, str, str, str]:
        """Source, target, problem and its explanation of a line; the latter two are empty for a good one."""
        return self._cells(content) if self.columns is not None else self._values(content)

    def _cells(self, content: str) -> tuple[str, str, str, str]:
        cells = content.split("\t")
        if len(cells) != self.columns:
            return _no_pair(content, "columns", f"columns: {len(cells)} instead of {self.columns}")
        source, target = (cells[int(number)] for number in self.fields)
        return source, target, "", ""

    def _values(self, content: str) -> tuple[str, str, str, str]:
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            return _no_pair(content, "unreadable", "not JSON")
        values = [json_value(record, key) for key in self.fields]
        for key, value in zip(self.fields, values, strict=True):
            if not isinstance(value, str):
                return _no_pair(content, "unreadable", f"no text under the key {key!r}")
        source, target = (" ".join(str(value).split()) for value in values)
        if has_surrogate(source + target):
            return source, target, "unreadable", "half of a surrogate pair"
        return source, target, "", ""


def _no_pair(content: str, problem: str, detail: str) -> tuple[str, str, str, str]:
    """Result of `PairFields.pick` for a line without these fields: the whole line and its problem."""
    return (content, "", problem, detail) if content.strip() else ("", "", "empty", "empty line")


def select_columns(path: Path, lines: Sequence[str], wanted: Sequence[str] | None) -> PairFields:
    """The columns of source and target in a table, as wanted, or else the first two that look like sentences.

    Raises:
        ConfigurationError: if there are not two, no such columns, or both are the same.
    """
    rows = [line.split("\t") for line in lines if line.strip()]
    if not rows:
        return PairFields(columns=2)
    widths = [len(row) for row in rows]
    columns = max(set(widths), key=widths.count)
    rows = [row for row in rows if len(row) == columns]
    header = rows[0] if all(map(is_heading, rows[0])) else []
    if wanted is not None:
        chosen = _numbers(path, rows[0], wanted)
        if len(set(chosen)) < len(chosen):
            raise ConfigurationError(f"--columns {','.join(wanted)}: source and target are the same.")
    else:
        chosen = [str(number) for number in range(columns) if _is_text([row[number] for row in rows])][:2]
        if columns == 2:
            chosen = ["0", "1"]
        if columns < 2:
            raise ConfigurationError(f"{path}: its lines have one column, so it holds no pairs.")
        if len(chosen) < 2:
            raise ConfigurationError(
                f"{path}: its lines have {columns} columns, but no two of them look like sentences. Name two: "
                "--columns 0,1 (source, target; columns count from 0)."
            )
    rest = [str(number) for number in range(columns) if str(number) not in chosen]
    note = f"{path}: {columns} columns; {' and '.join(chosen)} are read, not {', '.join(rest)}" if rest else ""
    languages = [_heading_language(header[int(number)]) if header else None for number in chosen]
    return PairFields((chosen[0], chosen[1]), columns, note, (languages[0], languages[1]))


def _numbers(path: Path, first: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The numbers of columns that are named by their numbers, or as in the first line.

    Raises:
        ConfigurationError: if there is no such column.
    """
    numbers = {name.strip(): str(number) for number, name in enumerate(first)}
    numbers |= {str(number): str(number) for number in range(len(first))}
    found = [numbers.get(str(int(name)) if name.isdecimal() else name) for name in wanted]
    if None in found:
        shown = "; ".join(f"{number}: {shorten(name, 40)}" for number, name in enumerate(first))
        raise ConfigurationError(
            f"{path}: --columns {','.join(wanted)}: there is no such column. Give two numbers, or names in the first "
            f"line, which has {shown}."
        )
    return [each for each in found if each is not None]


def select_keys(path: Path, lines: Iterable[str], wanted: Sequence[str] | None) -> PairFields:
    """The keys of source and target in JSON lines: as wanted, so named, or the first two that look like sentences.

    Raises:
        ConfigurationError: if there are not two.
    """
    if wanted is not None:
        return PairFields((wanted[0], wanted[1]), languages=(_last_code(wanted[0]), _last_code(wanted[1])))
    values: dict[str, list[str]] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for key, value in _strings(record):
            values.setdefault(key, []).append(value)
    found = [key for key, cells in values.items() if _is_text(cells)]
    chosen = ["source", "target"] if {"source", "target"} <= values.keys() else found[:2]
    if len(chosen) < 2:
        raise ConfigurationError(
            f"{path}: no two keys look like sentences (its keys: {', '.join(values) or 'none'}). Name them: "
            "--columns source,target (dots for nested keys)."
        )
    rest = [key for key in found if key not in chosen]
    note = f"{path}: the keys {' and '.join(chosen)} are read, not {', '.join(rest)}" if rest else ""
    return PairFields((chosen[0], chosen[1]), None, note, (_last_code(chosen[0]), _last_code(chosen[1])))


def _strings(record: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in record.items() if isinstance(record, dict) else ():
        name = f"{prefix}{key}"
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict) and not prefix:
            yield from _strings(value, f"{name}.")


def _is_text(cells: Sequence[str]) -> bool:
    """Whether the cells of a column look like sentences: with letters and spaces, and mostly distinct."""
    with_letters = sum(any(map(str.isalpha, cell)) for cell in cells)
    spaced = sum(" " in cell.strip() or not cell.isascii() for cell in cells)
    shares = [count / len(cells) for count in (with_letters, len(set(cells)), spaced)]
    return shares[0] >= TEXT_SHARE and shares[1] >= DISTINCT_SHARE and shares[2] >= SPACED_SHARE


def is_heading(cell: str) -> bool:
    """Whether a cell reads as the name of a column: a word of `HEADINGS`, or a language."""
    words = [word for word in re.split(r"[\s_\-./()\"']+", cell.strip().casefold()) if word]
    return 0 < len(words) <= MOST_WORDS and all(word in HEADINGS or word in languages_by_name() for word in words)


def _heading_language(cell: str) -> str | None:
    words = re.split(r"[\s_\-./()\"']+", cell.strip().casefold())
    return next((languages_by_name()[word] for word in words if word in languages_by_name()), None)


def _last_code(key: str) -> str | None:
    return languages_by_name().get(key.rpartition(".")[2].casefold())
