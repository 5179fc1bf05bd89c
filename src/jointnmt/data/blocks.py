"""Texts divided into blocks of lines that can be read independently: by any process, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from jointnmt.compression import compression_of
from jointnmt.data.corpus import (
    MAX_LINE_BYTES,
    UNREADABLE,
    ParallelText,
    check_line_length,
    lines_of_stream,
    open_text,
    unreadable,
)
from jointnmt.data.filters import FilterConfig, FilterReport
from jointnmt.data.line_index import LineIndex
from jointnmt.data.pairs import Pair, Row, parsed, parser_within, unequal
from jointnmt.errors import DataError

BLOCK_LINES = 2**16
"""Lines of a block, which one process segments at a time; also the most pairs of a file of the store."""

READ_BYTES = 2**22
FILES_AT_ONCE = 8


@dataclass(frozen=True)
class LineBlock:
    """Consecutive lines of a text."""

    number: int
    """Number of the block in the corpus, from 0."""
    text: int
    """Number of its text, from 0."""
    first_line: int
    """Number of its first line, from 1."""
    lines: int
    files: tuple[Path, ...]
    """Files to read: those of the text, or their unpacked copies."""
    offsets: tuple[int, ...]
    """Byte offset of the first line in each file."""


def divide(texts: Sequence[ParallelText], folder: Path) -> list[LineBlock]:
    """All lines of texts with complete paths as blocks of `BLOCK_LINES`, the last one of each text shorter.

    Each file is read once, several at a time. Compressed ones are unpacked into `folder`, as a block of them cannot be
    read without everything before it.

    Raises:
        DataError: if a file cannot be read, or the two of a text have different numbers of lines.
    """
    jobs = [
        (path, folder / f"{number}-{side}") for number, text in enumerate(texts) for side, path in enumerate(text.files)
    ]
    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
        found = iter([job.result() for job in [threads.submit(_index, *job) for job in jobs]])
    blocks: list[LineBlock] = []
    for number, text in enumerate(texts):
        indices = [next(found) for _ in text.files]
        counts = [index.lines for index in indices]
        if len(set(counts)) > 1:
            raise unequal(text.files, counts)
        for block, offsets in enumerate(zip(*(index.starts for index in indices), strict=True)):
            begin = block * BLOCK_LINES
            lines = min(BLOCK_LINES, counts[0] - begin)
            files = tuple(index.path for index in indices)
            blocks.append(LineBlock(len(blocks), number, begin + 1, lines, files, offsets))
    return blocks


def read_block(block: LineBlock, text: ParallelText, filters: FilterConfig, report: FilterReport) -> Iterator[Pair]:
    """The pairs of a block, as `read_pairs` yields them.

    Args:
        block: a block of the text.
        text: the text, with complete paths.
        filters: what to do with bad lines and empty sides.
        report: counts what is read and left out.

    Raises:
        DataError: if a line is bad, or a file has changed since it was divided.
    """
    parse = parser_within(text, block.files[0])
    yield from parsed(_rows(block, text), parse, text, block.text, block.first_line, filters, report)


def _rows(block: LineBlock, text: ParallelText) -> Iterator[Row]:
    count = 0
    with ExitStack() as opened:
        sides = [
            _lines(opened, path, offset, name, block.first_line)
            for path, offset, name in zip(block.files, block.offsets, text.files, strict=True)
        ]
        for count, row in enumerate(islice(zip(*sides, strict=False), block.lines), start=1):
            if max(map(len, row)) > MAX_LINE_BYTES:
                for raw, name in zip(row, text.files, strict=True):
                    check_line_length(raw, f"{name}:{block.first_line + count - 1}")
            yield row
    if count < block.lines:
        raise DataError(f"{text.files[0]}: became shorter while it was read. Start again when it is complete.")


def _lines(opened: ExitStack, path: Path, offset: int, name: Path, first_line: int) -> Iterator[bytes]:
    try:
        stream = opened.enter_context(path.open("rb"))
        stream.seek(offset)
        yield from lines_of_stream(stream, name, begun=offset > 0)
    except OSError as error:
        raise unreadable(name, error, first_line - 1) from error


@dataclass(frozen=True)
class _Index:
    """Byte offsets at which the blocks of a file begin, and its number of lines."""

    path: Path
    starts: tuple[int, ...]
    lines: int


def _index(path: Path, unpacked: Path) -> _Index:
    """Count the lines of a file, which is unpacked if it is compressed."""
    index = LineIndex(path, BLOCK_LINES)
    compressed = bool(compression_of(path))
    with unpacked.open("wb") if compressed else nullcontext() as copy:
        for chunk in _chunks(path):
            index.add(chunk)
            if copy is not None:
                copy.write(chunk)
    return _Index((unpacked if compressed else path).absolute(), index.starts, index.lines)


def _chunks(path: Path) -> Iterator[bytes]:
    """The decompressed content of a file, some megabytes at a time.

    Raises:
        DataError: if it cannot be read, naming the line.
    """
    lines = 0
    try:
        with open_text(path) as stream:
            while chunk := stream.read(READ_BYTES):
                yield chunk
                lines += chunk.count(b"\n")
    except UNREADABLE as error:
        raise unreadable(path, error, lines) from error
