"""Building a store: the blocks of its texts are segmented by a pool, deduplicated in order, and joined."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jointnmt.data.blocks import LineBlock, divide
from jointnmt.data.corpus import ParallelText
from jointnmt.data.filtering import SeenDigests
from jointnmt.data.filters import FilterConfig, FilterReport
from jointnmt.data.pool import Pool
from jointnmt.data.segmenting import DIGEST, BlockSegmenter, pyarrow, store_schema
from jointnmt.data.store_check import LENGTHS, SHARDS, checksum
from jointnmt.errors import DataError, LostProcessError
from jointnmt.files import hash_file

if TYPE_CHECKING:
    from filelock import FileLock

    from jointnmt.text.segmentation import Segmentation

logger = logging.getLogger(__name__)

Which = Literal["train", "validation"]

UNHARMED = (KeyboardInterrupt, SystemExit, GeneratorExit, LostProcessError)
"""After these exceptions, finished blocks are kept: the next build of the same store continues from them."""

UNFINISHED = ".partial"
"""Suffix of a store's name while it is built."""

ABANDONED = 7 * 24 * 3600
"""Seconds after which the unfinished store of an interrupted call is removed."""


def write_store(
    directory: Path,
    texts: Sequence[ParallelText],
    filters: FilterConfig,
    segmentation: Segmentation,
    which: Which,
    fingerprint: str,
    pool: Pool,
    progress: Callable[[int], None],
) -> None:
    """Segment and filter texts with complete paths into `directory`, whole or not at all.

    Needs the disk space of two stores, as the blocks are kept until all are joined. The store does not depend on the
    pool, nor on interruptions.

    Raises:
        DataError: if a text cannot be used, or no pair is left.
        LostProcessError: if a process of the pool dies.
    """
    unfinished = unfinished_store(directory)
    blocks, unpacked = unfinished / "blocks", unfinished / "unpacked"
    shutil.rmtree(directory, ignore_errors=True)
    blocks.mkdir(parents=True, exist_ok=True)
    _clear(unfinished, blocks)
    unpacked.mkdir()
    try:
        segmenter = BlockSegmenter(segmentation, tuple(texts), filters, which == "validation", blocks.absolute())
        report = _join(unfinished, divide(texts, unpacked), segmenter, pool, progress)
        if not report.kept:
            raise DataError(
                f"data.{which}: no pair is left to use. {report.render()}\nCheck the text and the limits in "
                "data.filters."
            )
        for folder in (blocks, unpacked):
            shutil.rmtree(folder)
        hashes = {path.name: hash_file(path) for path in sorted(unfinished.iterdir())}
        facts = {"fingerprint": fingerprint, "report": report.plain(), "hashes": hashes}
        facts["paths"] = [str(path) for text in texts for path in text.files]
        facts["checksum"] = checksum(facts)
        (unfinished / "store.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        unfinished.rename(directory)
    except UNHARMED:
        raise
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def remove_abandoned(folder: Path, but: Path) -> None:
    """Remove what interrupted calls have left in a folder of stores, except for the store `but`.

    A store that a process is building stays, as it is locked; so does one that has changed within `ABANDONED` seconds.
    """
    for unfinished in folder.glob(f"*{UNFINISHED}"):
        directory = unfinished.with_name(unfinished.name.removesuffix(UNFINISHED))
        if directory == but:
            continue
        with suppress(OSError), store_lock(directory, timeout=0):  # an OSError, too, if another has the lock
            newest = max(path.stat().st_mtime for path in (unfinished, *unfinished.iterdir()))
            if time.time() - newest > ABANDONED:
                logger.info("%s: left by an interrupted call, removed", unfinished)
                shutil.rmtree(unfinished, ignore_errors=True)


def unfinished_store(directory: Path) -> Path:
    """Folder in which a store is built."""
    return directory.with_name(directory.name + UNFINISHED)


def store_lock(directory: Path, timeout: float = -1) -> FileLock:
    """Lock held by the process that builds this store; others wait, at most `timeout` seconds (-1: no limit)."""
    from filelock import FileLock  # not for those who only read a model

    return FileLock(f"{directory}.lock", timeout)


def _clear(unfinished: Path, blocks: Path) -> None:
    """Remove what an interrupted call has left, except the blocks."""
    for path in unfinished.iterdir():
        if path.is_dir() and path != blocks:
            shutil.rmtree(path)
        elif not path.is_dir():
            path.unlink()


def _join(
    unfinished: Path,
    blocks: Sequence[LineBlock],
    segmenter: BlockSegmenter,
    pool: Pool,
    progress: Callable[[int], None],
) -> FilterReport:
    """Segment all blocks by the pool, and write the files of the store in their order."""
    report = FilterReport()
    seen = SeenDigests() if segmenter.filters.duplicates == "drop" else None
    done = sum(segmenter.path(block).exists() for block in blocks)
    if done:
        logger.info("continuing after %d of %d blocks of lines", done, len(blocks))
    with closing(pool.map(segmenter, blocks)) as reports, (unfinished / LENGTHS).open("wb") as lengths:
        for block, found in zip(blocks, reports, strict=True):
            report.add(found)
            _write_shard(unfinished / SHARDS.format(block.number), block, segmenter, seen, report, lengths)
            progress(report.read)
    return report


def _write_shard(
    path: Path,
    block: LineBlock,
    segmenter: BlockSegmenter,
    seen: SeenDigests | None,
    report: FilterReport,
    lengths: Any,
) -> None:
    """Write the pairs of a block that have not been seen before, and their lengths."""
    pa = pyarrow()
    origin = f"{segmenter.texts[block.text].files[0]}:{{}}".format
    schema = store_schema(segmenter.with_text)
    with (
        pa.memory_map(str(segmenter.path(block))) as stream,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, schema) as writer,
    ):
        for batch in pa.ipc.open_stream(stream):
            if seen is not None:
                batch = _unseen(batch, seen, report, origin)
            writer.write_batch(batch.select(schema.names))
            sides = [pa.compute.list_value_length(batch.column(side)).to_numpy() for side in ("source", "target")]
            lengths.write((np.stack(sides, axis=1) + 1).astype(np.int32).tobytes())


def _unseen(batch: Any, seen: SeenDigests, report: FilterReport, origin: Callable[[int], str]) -> Any:
    new = seen.add(batch.column(DIGEST).to_numpy())
    gone = np.flatnonzero(~new)
    if len(gone):
        report.remove("duplicate", origin(batch.column("line")[int(gone[0])].as_py()), len(gone))
    return batch.filter(pyarrow().array(new))
