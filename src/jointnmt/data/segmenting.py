"""Segmenting a block of a corpus: it is read, segmented, filtered, and written to its own file."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jointnmt.data.blocks import LineBlock, read_block
from jointnmt.data.corpus import ParallelText
from jointnmt.data.filtering import keep_by_length
from jointnmt.data.filters import FilterConfig, FilterReport
from jointnmt.data.pairs import Pair
from jointnmt.extras import extra
from jointnmt.files import hash_file

if TYPE_CHECKING:
    from jointnmt.text.segmentation import Segmentation

CHUNK_PAIRS = 8192
"""Pairs that are segmented, filtered and written at once; building holds a few times as many in memory."""

DIGEST = "digest"
"""Column with a hash of both texts, to find duplicates; only in a block's file, not in a store."""


@dataclass(frozen=True)
class Segmented:
    """A chunk of n sentence pairs as piece ids, without begin and end marks, one pair after the other."""

    source_ids: npt.NDArray[np.int32]
    target_ids: npt.NDArray[np.int32]
    source_lengths: npt.NDArray[np.int32]
    """Lengths of the sources, `[n]`, end mark included: one more than a pair has ids."""
    target_lengths: npt.NDArray[np.int32]


@dataclass(frozen=True)
class BlockSegmenter:
    """Segments the blocks of a corpus; sent to every worker process.

    A block's file and its `FilterReport` depend only on the block and these settings.
    """

    segmentation: Segmentation
    texts: tuple[ParallelText, ...]
    """Texts with complete paths."""
    filters: FilterConfig
    with_text: bool
    """Whether the raw text is stored, too."""
    folder: Path
    """Folder of the blocks' files, shared by all processes."""

    def __call__(self, block: LineBlock) -> FilterReport:
        """Segment, filter (except for duplicates) and write a block, unless this has been done before.

        Raises:
            DataError: as in `read_block`.
        """
        done = self.report(block)
        if done is not None:
            return done
        report = FilterReport()
        path = self.path(block)
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")  # another process, believed dead, may be writing it
        self._write(unfinished, block, report)
        facts = {"block": _facts(block), "sha256": hash_file(unfinished), "report": report.plain()}
        unfinished.replace(path)
        unfinished.write_text(json.dumps(facts), encoding="utf-8")
        unfinished.replace(path.with_suffix(".json"))
        return report

    def path(self, block: LineBlock) -> Path:
        """The file of a block."""
        return self.folder / f"{block.number:05d}.arrow"

    def report(self, block: LineBlock) -> FilterReport | None:
        """The report of a block that has been segmented and is intact; None if there is none."""
        try:
            facts = json.loads(self.path(block).with_suffix(".json").read_text(encoding="utf-8"))
            if facts["block"] != _facts(block) or facts["sha256"] != hash_file(self.path(block)):
                return None
            return FilterReport.parse(facts["report"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, path: Path, block: LineBlock, report: FilterReport) -> None:
        pa = pyarrow()
        schema = store_schema(self.with_text)
        if self.filters.duplicates == "drop":
            schema = schema.append(pa.field(DIGEST, pa.uint64()))
        pairs = read_block(block, self.texts[block.text], self.filters, report)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            while chunk := list(islice(pairs, CHUNK_PAIRS)):
                ids = segment(self.segmentation, chunk)
                origin = partial(_origin, chunk)
                kept = keep_by_length(self.filters, ids.source_lengths, ids.target_lengths, origin, report)
                writer.write_batch(_record_batch(chunk, ids, schema).filter(pa.array(kept)))


def segment(segmentation: Segmentation, chunk: Sequence[Pair]) -> Segmented:
    """Segment the two sides of a chunk."""
    source_ids, source_lengths = _flat(segmentation.source.encode_ids_batch([pair.source for pair in chunk]))
    target_ids, target_lengths = _flat(segmentation.target.encode_ids_batch([pair.target for pair in chunk]))
    return Segmented(source_ids, target_ids, source_lengths, target_lengths)


def store_schema(with_text: bool) -> Any:
    """The columns of a store."""
    pa = pyarrow()
    columns = [("source", pa.list_(pa.int32())), ("target", pa.list_(pa.int32()))]
    columns += [("file", pa.int32()), ("line", pa.int64())]
    if with_text:
        columns += [("source_text", pa.string()), ("target_text", pa.string())]
    return pa.schema(columns)


def pyarrow() -> Any:
    """The package `pyarrow`, which only training needs.

    Raises:
        MissingPackageError: if it is not installed.
    """
    with extra("train"):
        import pyarrow
        import pyarrow.compute  # as an attribute of the package, too, which importing that alone does not make
    return pyarrow


def _origin(chunk: Sequence[Pair], number: int) -> str:
    return chunk[number].origin


def _facts(block: LineBlock) -> list[int]:
    """Facts that identify a block, wherever its files are stored."""
    return [block.number, block.text, block.first_line, block.lines]


def _record_batch(chunk: Sequence[Pair], ids: Segmented, schema: Any) -> Any:
    pa = pyarrow()
    columns = {
        "source": lambda: pa.ListArray.from_arrays(_offsets(ids.source_lengths), ids.source_ids),
        "target": lambda: pa.ListArray.from_arrays(_offsets(ids.target_lengths), ids.target_ids),
        "file": lambda: [pair.text for pair in chunk],
        "line": lambda: [pair.line for pair in chunk],
        "source_text": lambda: [pair.source for pair in chunk],
        "target_text": lambda: [pair.target for pair in chunk],
        DIGEST: lambda: np.frombuffer(b"".join(_digests(chunk)), dtype=np.uint64),
    }
    return pa.record_batch([pa.array(columns[name](), type=schema.field(name).type) for name in schema.names], schema)


def _offsets(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Offsets of the rows of ids, and the end of the last one; lengths count end marks, which are not stored."""
    return np.concatenate([[0], np.cumsum(lengths - 1)]).astype(np.int32)


def _flat(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """All ids in one array, and the length of each row, end mark included."""
    lengths = np.fromiter((len(row) + 1 for row in rows), dtype=np.int32, count=len(rows))
    ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()) - len(rows))
    return ids, lengths


def _digests(chunk: Sequence[Pair]) -> Iterator[bytes]:
    # NUL cannot stand in a text (see `read_pairs`), so no two pairs run together to the same bytes.
    for pair in chunk:
        yield hashlib.blake2b(f"{pair.source}\0{pair.target}".encode(), digest_size=8).digest()
