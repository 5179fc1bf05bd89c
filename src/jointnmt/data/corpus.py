"""Parallel text: configuration of its files, and reading their lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self, cast

from pydantic import Field, model_validator

from jointnmt.cache import default_cache
from jointnmt.compression import compression_of, plain_name, undeclared_compression
from jointnmt.config import Config
from jointnmt.data.filters import FilterConfig
from jointnmt.errors import DataError, reason
from jointnmt.text.tags import check_tag

MAX_LINE_BYTES = 2**24
"""Longest line, in bytes; a file with a longer one is not text, and the line would have to be held in memory."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Exceptions of reading a file, compressed or not."""


def unreadable(path: Path, error: BaseException, lines: int = 0) -> DataError:
    """The error of a text that cannot be read further after so many complete lines."""
    where = f"{path}:{lines + 1}" if lines else str(path)
    return DataError(f"{where}: the file cannot be read: {reason(error)}. Check that it exists and is complete.")


def check_beginning(name: Path | str, beginning: bytes) -> None:
    """Refuse a file that is not text, or that would be read as a single line.

    Raises:
        DataError: if it is compressed but its name does not say so; if its lines end in CR alone.
    """
    if compressed := undeclared_compression(beginning):
        raise DataError(f"{name}: {compressed}")
    if beginning.count(b"\r") > 1 and b"\n" not in beginning:
        raise DataError(f"{name}: its lines end in CR alone, as on old Macs. Convert them, as by tr '\\r' '\\n'.")


class ParallelText(Config):
    """One parallel text: two files, whose lines translate each other one by one, or one file of pairs.

    Files with names in `.gz`, `.xz` or `.bz2` are decompressed while they are read. A `.tsv` file is split at every
    tab, without quoting, and every line has as many columns as the first; a `.jsonl` file has one JSON object a line.
    """

    source: Path | None = Field(None, description="file of source sentences, one a line; goes with target")
    target: Path | None = Field(None, description="file of target sentences, one a line; goes with source")
    path: Path | None = Field(None, description="file of pairs instead: .tsv or .jsonl, perhaps with .gz, .xz or .bz2")
    source_field: int | str | None = Field(
        None, description="source in path: column from 0 (default 0), or key, dots for nested ones (default source)"
    )
    target_field: int | str | None = Field(None, description="target in path: likewise (default 1, or target)")
    weight: float = Field(
        1.0, gt=0, le=1000, description="times that an epoch has each pair; a fraction: that share of pairs, in turn"
    )
    tag: str | None = Field(None, description="piece before each source, such as `<2en>`: for an origin or a language")

    @model_validator(mode="after")
    def _tag_differs_from_text(self) -> Self:
        if self.tag is not None:
            check_tag(self.tag)
        return self

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in ("source", "target", "path") if getattr(self, name) is not None]
        if given not in (["source", "target"], ["path"]):
            raise ValueError(f"give source and target, or path alone (given: {', '.join(given) or 'none of them'})")
        if self.path is None:
            if self.source_field is not None or self.target_field is not None:
                raise ValueError("source_field and target_field go with path, not with source and target")
            return self
        if self.format not in (".tsv", ".jsonl"):
            raise ValueError(f"{self.path} should end in .tsv or .jsonl, perhaps with .gz, .xz or .bz2 after it")
        for name, value in zip(("source_field", "target_field"), self.fields, strict=True):
            if self.format == ".tsv" and not (isinstance(value, int) and value >= 0):
                raise ValueError(f"{name} of {self.path} should be a column number from 0 (given: {value!r})")
            if self.format == ".jsonl" and not isinstance(value, str):
                raise ValueError(f"{name} of {self.path} should be a key (given: {value!r})")
        if self.fields[0] == self.fields[1] and None in (self.source_field, self.target_field):
            raise ValueError(
                f"source and target of {self.path} would both be {self.fields[0]!r}: set source_field and target_field"
            )
        return self

    @property
    def format(self) -> str:
        """File name extension of a file of pairs, `.tsv` or `.jsonl` if valid; empty for two files."""
        return "" if self.path is None else Path(plain_name(self.path)).suffix.lower()

    @property
    def fields(self) -> tuple[int | str, int | str]:
        """Columns or keys of source and target in a file of pairs."""
        source, target = ("source", "target") if self.format == ".jsonl" else (0, 1)
        return (
            source if self.source_field is None else self.source_field,
            target if self.target_field is None else self.target_field,
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The one or two files, source first."""
        return tuple(path for path in (self.path, self.source, self.target) if path is not None)


class DataConfig(Config):
    """The parallel texts of an experiment, and how they are filtered and stored."""

    root: Path = Field(Path(), description="folder of the texts, relative to the recipe that names it")
    source_language: str = Field(min_length=1, description="language code, such as `de`; chooses the rules of Moses")
    target_language: str = Field(min_length=1, description="language code; also chooses the tokeniser of BLEU")
    train: tuple[ParallelText, ...] = Field(min_length=1, description="training texts, at least one")
    validation: tuple[ParallelText, ...] = Field((), description="validation texts")
    filters: FilterConfig = Field(FilterConfig(), description="which pairs are kept")
    cache: Path | None = Field(
        None, description="folder of cached data; null: `$JOINTNMT_CACHE`, or else `~/.cache/jointnmt`"
    )
    processes: int = Field(
        0, ge=0, le=10_000, description="processes that segment a large corpus; 0: one for each CPU core"
    )

    @model_validator(mode="after")
    def _weights_are_of_training(self) -> Self:
        if any(text.weight != 1 for text in self.validation):
            raise ValueError("validation texts have no weight: each pair is measured once")
        return self

    @property
    def cache_folder(self) -> Path:
        """The folder of cached data, which may not exist yet."""
        return default_cache() if self.cache is None else self.cache.expanduser()

    def place(self, text: ParallelText) -> ParallelText:
        """The text with complete paths: relative ones are resolved against `root`."""
        root = self.root.expanduser()
        places = {name: getattr(text, name) for name in ("source", "target", "path")}
        return text.model_copy(update={name: root / path for name, path in places.items() if path is not None})


def read_lines(path: Path) -> Iterator[bytes]:
    """Lines of a plain or compressed file, without their ends and without a byte order mark before the first.

    Only a line feed, perhaps after a carriage return, ends a line; the last line may lack it.

    Raises:
        DataError: if the file is missing, cannot be decompressed, or has a line of more than `MAX_LINE_BYTES`.
    """
    for number, raw in enumerate(cut_lines(path), start=1):
        check_line_length(raw, f"{path}:{number}")
        yield raw


def check_line_length(raw: bytes, origin: str) -> None:
    """Refuse a line that `lines_of_stream` has truncated.

    Raises:
        DataError: naming the line.
    """
    if len(raw) > MAX_LINE_BYTES:
        raise DataError(f"{origin}: this line is longer than {MAX_LINE_BYTES} bytes. Check that the file is text.")


def cut_lines(path: Path) -> Iterator[bytes]:
    """Lines as from `read_lines`, but a line that is too long is truncated as by `lines_of_stream`, not refused."""
    number = 0
    try:
        with open_text(path) as stream:
            for raw in lines_of_stream(stream, path):
                number += 1
                yield raw
    except UNREADABLE as error:
        raise unreadable(path, error, number) from error


def lines_of_stream(stream: IO[bytes], name: Path | str, begun: bool = False) -> Iterator[bytes]:
    """Lines as from `read_lines`, each as soon as it is available; only one is held in memory.

    A stream that has `begun` is at a later line of its file, so no byte order mark is looked for.

    A line of more than `MAX_LINE_BYTES` is truncated to one byte more than that, which marks it as too long.

    Raises:
        DataError: with the stream's `name`, if its lines end in CR alone.
    """
    number = int(begun)
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            check_beginning(name, raw)
        if number == 1 and raw == BYTE_ORDER_MARK:
            return  # an empty text, as some editors save it
        if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        else:
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        yield raw.removeprefix(BYTE_ORDER_MARK) if number == 1 and len(raw) <= MAX_LINE_BYTES else raw


def open_text(path: Path) -> IO[bytes]:
    """A file opened for reading, decompressed if its name has an extension of `COMPRESSED`."""
    compression = compression_of(path)
    if compression == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if compression == ".xz":
        return lzma.open(path, "rb")
    if compression == ".bz2":
        return bz2.open(path, "rb")
    return path.open("rb")
