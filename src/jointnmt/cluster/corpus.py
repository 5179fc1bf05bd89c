"""Corpora of one or many files at any address, divided into numbered shards that workers read independently."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from fsspec.utils import glob_translate

from jointnmt.cluster.rows import (
    Format,
    JsonRows,
    ParquetRows,
    ShardRows,
    TextRows,
    check_columns,
    check_keys,
    lines_from,
)
from jointnmt.compression import compression_of, plain_name
from jointnmt.data.corpus import UNREADABLE, lines_of_stream
from jointnmt.data.line_index import LineIndex
from jointnmt.errors import ConfigurationError, DataError, reason
from jointnmt.runs.storage import file_system

FORMAT_OF_ENDING: dict[str, Format] = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
CHUNK_BYTES = 1 << 22
FILES_AT_ONCE = 8
FIRST_ROWS = 100
"""Number of rows of a file of JSON objects that are checked before anything is translated."""


@dataclass(frozen=True)
class Shard:
    """Rows of a file that are translated and written together."""

    number: int
    file: int
    start: int
    """Beginning of the shard: for text, a byte offset in the decompressed file; for a table, a row."""
    stop: int
    first_in_file: int
    """Number of rows of the file before the shard."""
    first: int
    """Number of rows of the corpus before the shard."""
    rows: int


@dataclass(frozen=True)
class IndexedFile:
    """Digest, shard bounds and rows of a file."""

    sha256: str
    """SHA-256 of its decompressed content."""
    bounds: tuple[int, ...]
    """Beginnings of the shards, and the end of the last one; see `Shard.start`."""
    rows: int


@dataclass(frozen=True)
class InputCorpus:
    """Files of one format, in the order of their names, and the column with the text."""

    paths: tuple[str, ...]
    format: Format
    fs: Any = field(repr=False)
    """The fsspec file system with the files."""
    column: str = "text"
    into: str = "translation"
    """Name of the new column."""

    @classmethod
    def find(cls, address: str, format: Format | None = None, **columns: str) -> InputCorpus:
        """The corpus at an address: a file, a folder, or a pattern with `*`.

        Args:
            address: a local path, or any fsspec address.
            format: format of the files; None: by their file name extension.
            columns: `column` and `into`.

        Raises:
            ConfigurationError: if the address is invalid, or the files have several formats.
            DataError: if there is no file.
        """
        fs, path = file_system(address)
        try:
            paths = sorted(_files(fs, path))
        except OSError as error:
            raise DataError(f"{address}: cannot be read: {reason(error)}. Check the address.") from error
        if not paths:
            raise DataError(f"{address}: there is no such file, or no file in this folder. Check the address.")
        formats = {_format(path) for path in paths} if format is None else {format}
        if len(formats) > 1:
            raise ConfigurationError(
                f"{address}: has files of several formats ({', '.join(sorted(formats))}). Name those of one, as in "
                "'FOLDER/*.jsonl', or give the format of all by --format."
            )
        return cls(tuple(paths), formats.pop(), fs, **columns)

    def index(self, shard_rows: int) -> list[IndexedFile]:
        """Read all files once for rows, digests, and beginnings of shards.

        Raises:
            ConfigurationError: if a table lacks the column, or already has the new one.
            DataError: if a file cannot be read.
        """
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return list(pool.map(partial(self._indexed, shard_rows=shard_rows), self.paths))

    def read(self, shard: Shard) -> ShardRows:
        """The rows of a shard.

        Raises:
            DataError: if the file cannot be read, or has changed.
        """
        path = self.paths[shard.file]

        def origin(index: int) -> str:
            return f"{path}:{shard.first_in_file + index + 1}"

        with _reading(path):
            rows = self._rows(path, shard, origin)
        if len(rows.texts) != shard.rows:
            raise DataError(
                f"{path}: was changed while it was translated: rows {shard.first_in_file + 1} to "
                f"{shard.first_in_file + shard.rows} differ. Translate it again, into another folder."
            )
        return rows

    def _rows(self, path: str, shard: Shard, origin: Any) -> ShardRows:
        if self.format == "parquet":
            with self.fs.open(path, "rb") as stream:
                return ParquetRows(_slice(stream, shard.start, shard.stop), origin, self.column, self.into)
        with self.fs.open(path, "rb", compression=_compression(path)) as stream:
            lines = lines_from(stream, path, shard.start, shard.stop)
        if self.format == "text":
            return TextRows(lines, origin)
        return JsonRows(lines, origin, self.column, self.into)

    def _indexed(self, path: str, shard_rows: int) -> IndexedFile:
        with _reading(path):
            if self.format == "parquet":
                return self._indexed_table(path, shard_rows)
            with self.fs.open(path, "rb", compression=_compression(path)) as stream:
                found = _indexed_text(stream, path, shard_rows)
            if self.format == "jsonl":
                with self.fs.open(path, "rb", compression=_compression(path)) as stream:
                    first = list(islice(lines_of_stream(stream, path), FIRST_ROWS))
                check_keys(first, path, self.column, self.into)
            return found

    def _indexed_table(self, path: str, shard_rows: int) -> IndexedFile:
        from pyarrow import parquet

        with self.fs.open(path, "rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            table = parquet.ParquetFile(stream)
            check_columns(table.schema_arrow, path, self.column, self.into)
            rows = table.metadata.num_rows
        return IndexedFile(sha256, (*range(0, rows, shard_rows), rows), rows)

    def facts(self, files: Sequence[IndexedFile]) -> dict[str, Any]:
        """Facts about the input that the output depends on, as JSON-compatible values: content and order, not names."""
        digest = hashlib.sha256("\n".join(each.sha256 for each in files).encode()).hexdigest()
        counts = {"files": len(files), "rows": sum(each.rows for each in files)}
        return {"format": self.format, "column": self.column, "into": self.into, **counts, "sha256": digest}


def check_outside(out: str, address: str) -> None:
    """Refuse a folder for translations within the input, as they would be input of the next call.

    Raises:
        ConfigurationError: if it does.
    """
    (fs, path), (other, folder) = file_system(address), file_system(out)
    if fs != other:
        return
    if "file" in fs.protocol:
        path, folder = (Path(each).resolve().as_posix() for each in (path, folder))
    if fs.isdir(path):
        within = PurePosixPath(folder).is_relative_to(path)
    else:
        parent, _, name = path.rpartition("/")
        pattern = glob_translate(f"{parent}/{name if '**' in name else '*'}")
        within = "*" in path and re.match(pattern, f"{folder}/part") is not None
    if within:
        raise ConfigurationError(
            f"--out {out}: is within the input, {address}, so translations would become input when the command is "
            "resumed. Name a folder outside."
        )


def shards_of(files: Sequence[IndexedFile], shard_rows: int) -> list[Shard]:
    """The shards of indexed files, in the order of their rows."""
    return [Shard(number, *place) for number, place in enumerate(_places(files, shard_rows))]


def _places(files: Sequence[IndexedFile], shard_rows: int) -> Iterator[tuple[int, int, int, int, int, int]]:
    before = 0
    for number, file in enumerate(files):
        for i, (start, stop) in enumerate(zip(file.bounds, file.bounds[1:], strict=False)):
            first = i * shard_rows
            rows = min(shard_rows, file.rows - first)
            if rows > 0:
                yield number, start, stop, first, before + first, rows
        before += file.rows


def _indexed_text(stream: Any, name: str, shard_rows: int) -> IndexedFile:
    """Index of a text with the beginning of every `shard_rows`-th line; lines are those of `lines_of_stream`."""
    digest, index = hashlib.sha256(), LineIndex(name, shard_rows)
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
        index.add(chunk)
    return IndexedFile(digest.hexdigest(), (*index.starts, index.size), index.lines)


def _slice(stream: Any, start: int, stop: int) -> Any:
    """Rows of a table; only the row groups with some of them are read."""
    from pyarrow import parquet

    table = parquet.ParquetFile(stream)
    sizes = [table.metadata.row_group(i).num_rows for i in range(table.num_row_groups)]
    ends = np.cumsum(sizes)
    groups = [i for i, end in enumerate(ends) if end > start and end - sizes[i] < stop]
    before = int(ends[groups[0]]) - sizes[groups[0]]
    return table.read_row_groups(groups).slice(start - before, stop - start)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Name the file that could not be read.

    Raises:
        DataError: in place of errors of reading.
    """
    try:
        yield
    except (*UNREADABLE, ValueError) as error:  # pyarrow raises the latter for damaged files
        raise DataError(f"{path}: cannot be read: {reason(error)}. Check that it exists and is complete.") from error


def _files(fs: Any, path: str) -> list[str]:
    """The files of an address; files and folders that begin with a dot or an underscore are left out."""
    if fs.isdir(path):
        folder, found = path, fs.find(path)
    elif "*" in path:
        folder = path.partition("*")[0].rpartition("/")[0]
        found = [each for each in fs.glob(path) if not fs.isdir(each)]
    else:
        return [path] if fs.exists(path) else []
    return [path for path in found if not any(map(_is_hidden, path.removeprefix(folder).split("/")))]


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _format(path: str) -> Format:
    return FORMAT_OF_ENDING.get(PurePosixPath(plain_name(PurePosixPath(path))).suffix.lower(), "text")


def _compression(path: str) -> str | None:
    return "infer" if compression_of(PurePosixPath(path)) else None
