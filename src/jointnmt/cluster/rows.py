"""The rows of a shard in each format: their texts, and the rows with translations."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from jointnmt.data.corpus import lines_of_stream
from jointnmt.data.lines import decoded_or_error
from jointnmt.data.pairs import json_value
from jointnmt.errors import ConfigurationError, DataError

Format = Literal["text", "jsonl", "parquet"]


def lines_from(stream: Any, name: str, start: int, stop: int) -> list[bytes]:
    """The lines between two offsets of a stream, as `lines_of_stream` yields them for the whole stream."""
    stream.seek(start)
    data = stream.read(stop - start)
    return list(lines_of_stream(io.BytesIO(data), name, begun=start > 0))


class TextRows:
    """Lines of plain text; only the translations are written, line by line."""

    def __init__(self, lines: Iterable[bytes], origin: Callable[[int], str]) -> None:
        self._lines = list(lines)
        self.texts: list[str | DataError] = [decoded_or_error(line, origin(i)) for i, line in enumerate(self._lines)]

    def raw(self, index: int) -> str:
        """The line, what is no UTF-8 in it replaced."""
        return self._lines[index].decode("utf-8", errors="replace")

    def written(self, translations: Sequence[str | None]) -> bytes:
        """A line for each row, empty if there is no translation."""
        return "".join(f"{each or ''}\n" for each in translations).encode()


class JsonRows:
    """JSON objects, one a line. They are written unchanged byte for byte, with one more key at the end."""

    def __init__(self, lines: Iterable[bytes], origin: Callable[[int], str], column: str, into: str) -> None:
        self._lines, self._into = list(lines), into
        self._objects = [_object(line, origin(i)) for i, line in enumerate(self._lines)]
        self.texts: list[str | DataError] = [
            each if isinstance(each, DataError) else _value(each[1], origin(i), column, into)
            for i, each in enumerate(self._objects)
        ]

    def raw(self, index: int) -> str:
        """The line, what is no UTF-8 in it replaced."""
        return self._lines[index].decode("utf-8", errors="replace")

    def written(self, translations: Sequence[str | None]) -> bytes:
        """An object for each row; that of an unreadable line has the new key alone.

        An object that already has a key of that name is kept unchanged.
        """
        return "".join(map(self._extended, self._objects, translations)).encode()

    def _extended(self, row: tuple[str, dict[str, Any]] | DataError, translation: str | None) -> str:
        line, value = ("{}", dict[str, Any]()) if isinstance(row, DataError) else row
        if self._into in value:
            return f"{line}\n"
        before = line[:-1].rstrip()
        added = f"{json.dumps(self._into)}: {json.dumps(translation, ensure_ascii=False)}}}\n"
        return f"{before}{'' if before == '{' else ', '}{added}"


def check_keys(lines: Iterable[bytes], origin: str, column: str, into: str) -> None:
    """Refuse a file if none of its first lines has text under this key, or the first already has the new key.

    Raises:
        ConfigurationError: naming the keys of the first line.
    """
    read = [each for each in (_object(line, origin) for line in lines) if not isinstance(each, DataError)]
    if read and into in read[0][1]:
        raise ConfigurationError(f"{origin}: already has a key {into!r}. Name another for translations by --into.")
    if read and not any(isinstance(json_value(value, column), str) for _, value in read):
        known = ", ".join(read[0][1])
        raise ConfigurationError(
            f"{origin}: its first objects have no text {column!r}. The first one has: {known}. Name one by --column."
        )


class ParquetRows:
    """The rows of a table. It is written with its columns and their types unchanged, and one more column."""

    def __init__(self, table: Any, origin: Callable[[int], str], column: str, into: str) -> None:
        self._table, self._into = table, into
        self._values = _bytes_of(table.column(column))
        self.texts: list[str | DataError] = [
            DataError(f"{origin(i)}: has no text in the column {column!r} (null).")
            if value is None
            else decoded_or_error(value, origin(i))
            for i, value in enumerate(self._values)
        ]

    def raw(self, index: int) -> str | None:
        """The text, what is no UTF-8 in it replaced."""
        value = self._values[index]
        return None if value is None else value.decode("utf-8", errors="replace")

    def written(self, translations: Sequence[str | None]) -> bytes:
        """The table with its new column, null where there is no translation."""
        import pyarrow as pa
        from pyarrow import parquet

        stream = io.BytesIO()
        added = pa.array(translations, pa.string())
        parquet.write_table(self._table.append_column(self._into, added), stream)
        return stream.getvalue()


ShardRows = TextRows | JsonRows | ParquetRows
"""The rows of a shard: `texts` to translate, with an error in place of a row without a text; each `raw` row for the
list of untranslated rows; and the file's content as `written` with translations (None: untranslated)."""


def check_columns(schema: Any, origin: str, column: str, into: str) -> None:
    """Refuse a table that lacks this text column, or already has the new column.

    Raises:
        ConfigurationError: naming the columns that it has.
    """
    import pyarrow as pa

    if column not in schema.names:
        raise ConfigurationError(
            f"{origin}: has no column {column!r}. It has: {', '.join(schema.names)}. Name one by --column."
        )
    if schema.names.count(column) > 1:
        raise ConfigurationError(f"{origin}: has several columns {column!r}. Rename all but one, or name another one.")
    kind = schema.field(column).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)):
        raise ConfigurationError(f"{origin}: its column {column!r} is not text but {kind}. Name another by --column.")
    if into in schema.names:
        raise ConfigurationError(f"{origin}: already has a column {into!r}. Name another for translations by --into.")


def _bytes_of(column: Any) -> list[bytes | None]:
    """The texts of a column as stored bytes, not checked to be UTF-8."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], column.type.value_type)
    return list(column.cast(pa.large_binary()).to_pylist())


def _object(line: bytes, origin: str) -> tuple[str, dict[str, Any]] | DataError:
    """The text of a JSON object without space around it, and its value."""
    text = decoded_or_error(line, origin)
    if isinstance(text, DataError):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return DataError(f"{origin}: is not JSON ({error}). Correct the line.")
    if not isinstance(value, dict):
        return DataError(f"{origin}: is not a JSON object. Correct the line.")
    return text.strip(), value


def _value(row: dict[str, Any], origin: str, column: str, into: str) -> str | DataError:
    if into in row:
        return DataError(f"{origin}: already has a key {into!r}. Name another for translations by --into.")
    text = json_value(row, column)
    if isinstance(text, str):
        return text if "\0" not in text else DataError(f"{origin}: holds a NUL byte, so it is not text. Remove it.")
    what = "no text, but another value, in" if text is not None or column in row else "no text under"
    return DataError(f"{origin}: has {what} {column!r}. Correct the line, or name another key by --column.")
