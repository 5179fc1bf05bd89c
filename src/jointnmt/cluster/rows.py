"""The rows of a shard in each format: what is to be translated, and the rows with their translations."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

from jointnmt.data.corpus import lines_of_stream
from jointnmt.data.lines import decoded
from jointnmt.errors import ConfigurationError, DataError

Format = Literal["text", "jsonl", "parquet"]


class ShardRows(Protocol):
    """The rows of a shard."""

    texts: list[str | DataError]
    """What is to be translated; an error stands for a row without a text."""

    def raw(self, index: int) -> str | None:
        """A row as a person would look it up: its line, or its text."""
        ...

    def written(self, translations: Sequence[str | None]) -> bytes:
        """A file of the rows with their translations; None: there is none."""
        ...


def lines_from(stream: Any, start: int, stop: int) -> list[bytes]:
    """The lines between two offsets of a stream, as `lines_of_stream` has them in the whole of it."""
    stream.seek(start)
    data = stream.read(stop - start)
    if start == 0:
        return list(lines_of_stream(io.BytesIO(data)))
    # A byte order mark is one at the beginning of the file only: let no line of a later shard be the first.
    return list(lines_of_stream(io.BytesIO(b"\n" + data)))[1:]


class TextRows:
    """Lines of plain text; written are the translations alone, line by line."""

    def __init__(self, lines: Iterable[bytes], origin: Callable[[int], str]) -> None:
        self._lines = list(lines)
        self.texts: list[str | DataError] = [_text(line, origin(i)) for i, line in enumerate(self._lines)]

    def raw(self, index: int) -> str:
        """The line, what is no UTF-8 in it replaced."""
        return self._lines[index].decode("utf-8", errors="replace")

    def written(self, translations: Sequence[str | None]) -> bytes:
        """A line for each row, which is empty if there is no translation."""
        return "".join(f"{each or ''}\n" for each in translations).encode()


class JsonRows:
    """JSON objects, one a line. They are written byte for byte as they were, with one more key at the end."""

    def __init__(self, lines: Iterable[bytes], origin: Callable[[int], str], column: str, into: str) -> None:
        self._lines, self._into = list(lines), into
        read = [_object(line, origin(i), into) for i, line in enumerate(self._lines)]
        self._objects = [None if isinstance(each, DataError) else each[0] for each in read]
        self.texts: list[str | DataError] = [
            each if isinstance(each, DataError) else _value(each[1], origin(i), column) for i, each in enumerate(read)
        ]

    def raw(self, index: int) -> str:
        """The line, what is no UTF-8 in it replaced."""
        return self._lines[index].decode("utf-8", errors="replace")

    def written(self, translations: Sequence[str | None]) -> bytes:
        """An object for each row; one of a line that cannot be read has the new key alone."""
        return "".join(map(self._extended, self._objects, translations)).encode()

    def _extended(self, line: str | None, translation: str | None) -> str:
        added = f"{json.dumps(self._into)}: {json.dumps(translation, ensure_ascii=False)}}}\n"
        before = (line or "{}")[:-1].rstrip()
        return f"{before}{'' if before == '{' else ', '}{added}"


class ParquetRows:
    """The rows of a table. It is written with its columns and their types as they were, and one more column."""

    def __init__(self, table: Any, origin: Callable[[int], str], column: str, into: str) -> None:
        self._table, self._into = table, into
        self._values = table.column(column).to_pylist()
        self.texts: list[str | DataError] = [
            DataError(f"{origin(i)}: has no text in the column {column!r} (null).") if value is None else value
            for i, value in enumerate(self._values)
        ]

    def raw(self, index: int) -> str | None:
        """The text."""
        return self._values[index]

    def written(self, translations: Sequence[str | None]) -> bytes:
        """The table with its new column, null where there is no translation."""
        import pyarrow as pa
        from pyarrow import parquet

        stream = io.BytesIO()
        added = pa.array(translations, pa.string())
        parquet.write_table(self._table.append_column(self._into, added), stream)
        return stream.getvalue()


def check_columns(schema: Any, origin: str, column: str, into: str) -> None:
    """Refuse a table that has no such column of text, or one of the new column's name.

    Raises:
        ConfigurationError: naming the columns that it has.
    """
    import pyarrow as pa

    if column not in schema.names:
        raise ConfigurationError(
            f"{origin}: has no column {column!r}. It has: {', '.join(schema.names)}. Name one by --column."
        )
    kind = schema.field(column).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)):
        raise ConfigurationError(f"{origin}: its column {column!r} is no text, but {kind}. Name another by --column.")
    if into in schema.names:
        raise ConfigurationError(f"{origin}: has a column {into!r} already. Name another for translations by --into.")


def _text(line: bytes, origin: str) -> str | DataError:
    try:
        return decoded(line, origin)
    except DataError as error:
        return error


def _object(line: bytes, origin: str, into: str) -> tuple[str, dict[str, Any]] | DataError:
    """The text of a JSON object without space around it, and its value."""
    text = _text(line, origin)
    if isinstance(text, DataError):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return DataError(f"{origin}: is no JSON ({error}). Correct the line.")
    if not isinstance(value, dict):
        return DataError(f"{origin}: is no JSON object. Correct the line.")
    if into in value:
        return DataError(f"{origin}: has a key {into!r} already. Name another for translations by --into.")
    return text.strip(), value


def _value(row: dict[str, Any], origin: str, column: str) -> str | DataError:
    text = row.get(column)
    if isinstance(text, str):
        return text
    what = "no text, but another value, in" if column in row else "no key"
    return DataError(f"{origin}: has {what} {column!r}. Correct the line, or name another key by --column.")
