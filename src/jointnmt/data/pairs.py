"""Reading parallel text as a stream of sentence pairs, from the beginning or a block of lines of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jointnmt.data.corpus import DataConfig, ParallelText, read_lines
from jointnmt.data.filters import FilterConfig, FilterReport
from jointnmt.errors import DataError
from jointnmt.text.invisible import has_surrogate, is_blank

logger = logging.getLogger(__name__)


class Pair(NamedTuple):
    """A sentence pair as in the files, without line ends, and its place."""

    source: str
    target: str
    file: Path
    """The file of pairs, or of source sentences."""
    line: int
    """Line number, from 1."""
    text: int = 0
    """Number of its text, from 0."""

    @property
    def origin(self) -> str:
        """The place as `file:line`."""
        return f"{self.file}:{self.line}"


OF_ENCODINGS = (NUL, NOT_UTF8) = ("NUL byte", "invalid UTF-8")
"""Faults of lines of a text in another encoding."""


class _BadPairError(Exception):
    """A pair that cannot be used, with the reason; caught in `parsed`."""

    def __init__(self, kind: Literal["invalid", "empty"], reason: str, origin: str) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.origin = kind, reason, origin


def read_pairs(texts: Sequence[ParallelText], config: DataConfig, report: FilterReport | None = None) -> Iterator[Pair]:
    """Read texts, such as `config.train`, one after the other, a pair at a time; memory does not grow with their size.

    Bad lines and empty sides are errors, or are left out and counted in `report`, as `config.filters` says. Without a
    `report`, one is logged at the end if anything was left out. The other filters are applied by `BlockSegmenter`.

    Raises:
        DataError: naming file and line: a file is missing or damaged, the numbers of lines differ, or a line is bad and
            the configuration does not say to leave it out.
    """
    account = FilterReport() if report is None else report
    for number, text in enumerate(texts):
        place = config.place(text)
        yield from parsed(_rows(place), parser(place), place, number, 1, config.filters, account)
    if report is None and account.removed:
        logger.warning(account.render())


Row = tuple[bytes, ...]
"""Raw line of a file of pairs, or of each of two files."""

Parser = Callable[[Row, int], tuple[str, str]]
"""Function that makes source and target of a row and its line number."""


def parsed(
    rows: Iterable[Row],
    parse: Parser,
    text: ParallelText,
    number: int,
    first_line: int,
    filters: FilterConfig,
    report: FilterReport,
) -> Iterator[Pair]:
    """The pairs of consecutive rows; bad ones are errors or are left out, as the filters say.

    Args:
        rows: consecutive rows of the text.
        parse: the text's parser, see `parser`.
        text: the text, with complete paths.
        number: number of the text, from 0.
        first_line: line number of the first row.
        filters: what to do with bad lines and empty sides.
        report: counts what is read and left out.

    Raises:
        DataError: naming file and line of a bad pair.
    """
    files = text.files
    for line, row in enumerate(rows, start=first_line):
        report.read += 1
        try:
            source, target = parse(row, line)
            _require_content(source, target, files, line)
        except _BadPairError as error:
            _leave_out(error, filters, report)
            continue
        yield Pair(source if text.tag is None else f"{text.tag} {source}", target, files[0], line, number)


def _leave_out(error: _BadPairError, filters: FilterConfig, report: FilterReport) -> None:
    if getattr(filters, error.kind) == "error":
        other = error.reason in OF_ENCODINGS
        remedy = (
            "If the text has another encoding, convert it to UTF-8, for example with iconv; otherwise fix"
            if other
            else "Fix"
        )
        raise DataError(
            f"{error.origin}: {error.reason}. {remedy} the line, or set data.filters.{error.kind}=drop to leave such "
            "pairs out and have them counted."
        ) from None
    report.remove(error.reason, error.origin)


def _require_content(source: str, target: str, files: Sequence[Path], line: int) -> None:
    for side, content, path in (("source", source, files[0]), ("target", target, files[-1])):
        if is_blank(content):
            raise _BadPairError("empty", f"empty {side}", f"{path}:{line}")


def _rows(text: ParallelText) -> Iterator[Row]:
    """All lines of a text."""
    files = text.files
    return _zip_lines(*files) if len(files) == 2 else ((raw,) for raw in read_lines(files[0]))


def parser(text: ParallelText) -> Parser:
    """The parser of the rows of a text with complete paths, from its first row on."""
    files = text.files
    if len(files) == 2:
        source_path, target_path = files

        def parse_two(row: Row, line: int) -> tuple[str, str]:
            return _decode(row[0], source_path, line), _decode(row[1], target_path, line)

        return parse_two

    is_table, fields = text.format == ".tsv", text.fields
    split = _TsvSplitter() if is_table else _split_json

    def parse_one(row: Row, line: int) -> tuple[str, str]:
        content, origin = _decode(row[0], files[0], line), f"{files[0]}:{line}"
        if is_blank(content) and not (is_table and "\t" in content):  # tabs alone: columns with nothing in them
            raise _BadPairError("empty", "empty line", origin)
        source, target = split(content, fields, origin)
        return source, target

    return parse_one


def parser_within(text: ParallelText, path: Path) -> Parser:
    """The parser of later rows of a text; `path` holds its first rows, which set the number of columns of a `.tsv`."""
    parse = parser(text)
    if text.format == ".tsv":
        for line, raw in enumerate(read_lines(path), start=1):
            with suppress(_BadPairError):
                parse((raw,), line)
                break
    return parse


def _decode(raw: bytes, path: Path, line: int) -> str:
    if b"\0" in raw:
        raise _BadPairError("invalid", NUL, f"{path}:{line}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _BadPairError("invalid", NOT_UTF8, f"{path}:{line}") from None


class _TsvSplitter:
    """Picks columns of the lines of one file, all of which must have as many columns as its first line."""

    def __init__(self) -> None:
        self.columns: int | None = None

    def __call__(self, content: str, fields: Sequence[int | str], origin: str) -> list[str]:
        columns = content.split("\t")
        numbers = [int(number) for number in fields]
        if max(numbers) >= len(columns):
            raise _BadPairError("invalid", f"no column {max(numbers)} (columns count from 0)", origin)
        self.columns = self.columns or len(columns)
        if len(columns) != self.columns:  # an extra tab would shift all columns after it
            reason = f"another number of columns than before, {len(columns)} instead of {self.columns}"
            raise _BadPairError("invalid", reason, origin)
        return [columns[number] for number in numbers]


def _split_json(content: str, fields: Sequence[int | str], origin: str) -> list[str]:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        raise _BadPairError("invalid", "not JSON", origin) from None
    sides = []
    for key in map(str, fields):
        value = json_value(record, key)
        if not isinstance(value, str):
            raise _BadPairError("invalid", f"no string under the key {key!r}", origin)
        if "\0" in value:
            raise _BadPairError("invalid", NUL, origin)
        if has_surrogate(value):
            raise _BadPairError("invalid", "half of a surrogate pair", origin)
        sides.append(value)
    return sides


def json_value(record: Any, key: str) -> Any:
    """The value of a key of a JSON object or, with dots, of a nested key; None: there is none."""
    if not isinstance(record, dict) or key in record:
        return record[key] if isinstance(record, dict) else None
    parts = key.split(".")
    keys = ((".".join(parts[:number]), ".".join(parts[number:])) for number in range(1, len(parts)))
    return next((value for outer, inner in keys if (value := json_value(record.get(outer), inner)) is not None), None)


def _zip_lines(source: Path, target: Path) -> Iterator[Row]:
    """Rows of the lines of two files.

    Raises:
        DataError: if one has more lines than the other; both are counted to the end for the message.
    """
    source_lines, target_lines = read_lines(source), read_lines(target)
    for count, (source_line, target_line) in enumerate(zip_longest(source_lines, target_lines)):
        if source_line is None or target_line is None:
            rest = 1 + sum(1 for _ in (target_lines if source_line is None else source_lines))
            counts = (count, count + rest) if source_line is None else (count + rest, count)
            raise unequal((source, target), counts)
        yield source_line, target_line


def unequal(files: Sequence[Path], counts: Sequence[int]) -> DataError:
    """The error of two files with different numbers of lines."""
    (fewer, shorter), (more, longer) = sorted(zip(counts, files, strict=True))
    return DataError(
        f"{longer}:{fewer + 1}: this line has no counterpart: {longer} has {more} lines, but {shorter} "
        f"has {fewer}. Line i of one file must translate line i of the other: check that both are complete "
        "and belong together."
    )
