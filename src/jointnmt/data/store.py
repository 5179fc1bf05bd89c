"""Segmented text: made once for each content and setting, kept on disk, memory-mapped."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from jointnmt.cache import default_cache
from jointnmt.data.corpus import DataConfig, Pair, ParallelText, read_pairs
from jointnmt.data.filtering import PairFilter
from jointnmt.data.filters import FilterConfig, FilterReport
from jointnmt.data.segmenting import Segmented, segment_chunks
from jointnmt.data.store_check import checksum, fault, hash_file
from jointnmt.errors import ConfigurationError, DataError, reason
from jointnmt.extras import extra

if TYPE_CHECKING:
    from jointnmt.text.segmentation import Segmentation

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
"""Part of a store's fingerprint: a store of another format is made anew."""

CHUNK_PAIRS = 8192
"""Pairs that are segmented, filtered and written at once: what building holds in memory, a few times over."""

POOL_BYTES = 20_000_000
"""Files smaller than this together are segmented in this process: starting others would take longer."""

Which = Literal["train", "validation"]


class SegmentedText(Protocol):
    """Sentence pairs as piece ids, without begin and end marks."""

    @property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Pieces of every source and of every target, end marks counted."""

    def pairs(self, indices: Iterable[int]) -> list[tuple[list[int], list[int]]]:
        """Source and target ids of the pairs with these numbers, in this order."""


class TokenStore:
    """Sentence pairs as piece ids, without begin and end marks, in the order of the files.

    Pairs and lengths lie on disk and are memory-mapped, so a large store takes no more memory than a small one, apart
    from pages that the system may drop at any time.
    """

    def __init__(self, directory: Path, files: Sequence[Path], weights: Sequence[float] | None = None) -> None:
        """Open a store that `build_store` made.

        Args:
            directory: of the store.
            files: the texts' first files, as messages should name them.
            weights: how often an epoch has the pairs of each text; None: once.
        """
        self.weights = tuple(weights or [1.0] * len(files))
        facts = json.loads((directory / "store.json").read_text(encoding="utf-8"))
        self.directory = directory
        self.fingerprint: str = facts["fingerprint"]
        """Hash of the files' content, the filters, the segmentation and the format."""
        self.report = FilterReport.parse(facts["report"])
        """What the filters removed."""
        self._files = tuple(files)
        self._pairs = _Rows(directory / "pairs.arrow")
        self._lengths = np.memmap(directory / "lengths.bin", dtype=np.int32, mode="r").reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Pieces of every source and of every target, end marks counted; memory-mapped, 8 bytes a pair."""
        return self._lengths[:, 0], self._lengths[:, 1]

    def pairs(self, indices: Iterable[int]) -> list[tuple[list[int], list[int]]]:
        """Source and target ids of the pairs with these numbers, in this order."""
        rows = self._pairs.read(indices, ("source", "target"))
        return [(source.values.to_numpy().tolist(), target.values.to_numpy().tolist()) for source, target in rows]

    def texts(self, indices: Iterable[int] | None = None) -> list[tuple[str, str]]:
        """Source and target text as in the files, of these pairs or of all; kept for validation text only.

        Raises:
            ValueError: if the store was built for training.
        """
        names = ("source_text", "target_text")
        if not self._pairs.has(names):
            raise ValueError("a store for training keeps no text")
        rows = self._pairs.read(range(len(self)) if indices is None else indices, names)
        return [(source.as_py(), target.as_py()) for source, target in rows]

    def ids(self, side: Literal["source", "target"]) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]]:
        """The pieces of all sentences of a side, without end marks, some thousand sentences at a time.

        Yields:
            pieces, one sentence after the other, and `[n + 1]` where each begins among them, and their number.
        """
        for chunk in self._pairs.chunks(side):
            offsets = chunk.offsets.to_numpy().astype(np.int64)
            yield chunk.flatten().to_numpy(), offsets - offsets[0]

    def target_ids(self) -> Iterator[npt.NDArray[np.int32]]:
        """The pieces of all targets, without end marks, some thousand pairs at a time."""
        return (ids for ids, _ in self.ids("target"))

    def text_numbers(self) -> npt.NDArray[np.int32]:
        """Which of the texts each pair is of; 4 bytes a pair."""
        return np.concatenate([chunk.to_numpy() for chunk in self._pairs.chunks("file")])

    def origin(self, index: int) -> str:
        """Where a pair stands in the files, as `file:line`."""
        ((file, line),) = self._pairs.read([index], ("file", "line"))
        return f"{self._files[file.as_py()]}:{line.as_py()}"


class _Rows:
    """The rows of an Arrow stream, memory-mapped: opening it reads no more than where each chunk of rows begins."""

    def __init__(self, path: Path) -> None:
        pa = _pyarrow()
        with pa.memory_map(str(path)) as stream:
            table = pa.ipc.open_stream(stream).read_all()
        self._chunks = {name: table.column(name).chunks for name in table.column_names}
        self._starts = np.cumsum([0, *(batch.num_rows for batch in table.to_batches())])

    def has(self, names: Sequence[str]) -> bool:
        """Whether there are these columns."""
        return set(names) <= self._chunks.keys()

    def chunks(self, name: str) -> Sequence[Any]:
        """A whole column, as Arrow's arrays."""
        return self._chunks[name]

    def read(self, indices: Iterable[int], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Some columns of the rows with these numbers, in this order, as Arrow's scalars."""
        numbers = np.fromiter(indices, dtype=np.int64)
        chunks = np.searchsorted(self._starts, numbers, side="right") - 1
        for chunk, row in zip(chunks.tolist(), (numbers - self._starts[chunks]).tolist(), strict=True):
            yield tuple(self._chunks[name][chunk][row] for name in names)


def _pyarrow() -> Any:
    with extra("train"):
        import pyarrow
    return pyarrow


def build_store(
    config: DataConfig,
    segmentation: Segmentation,
    which: Which = "train",
    progress: Callable[[int], None] = lambda pairs: None,
) -> TokenStore:
    """Segment the texts and filter them, or open the store that has been made of the same content and settings.

    Validation text is filtered by `FilterConfig.for_validation` and keeps its raw text. Building reads the texts as
    streams: memory does not grow with their size, but for 8 bytes a kept pair while duplicates are looked for. The
    store appears under its name only when it is complete; processes that build the same one wait for the first.
    `progress` is told how many pairs have been segmented.

    Raises:
        ConfigurationError: if there is no such text, or the cache folder cannot be written.
        DataError: if a text cannot be read (see `read_pairs`), or no pair is left.
    """
    from filelock import FileLock  # not for those who only read a model

    texts = [config.place(text) for text in getattr(config, which)]
    if not texts:
        raise ConfigurationError(f"data.{which} names no text: give it at least one pair of files.")
    filters = config.filters if which == "train" else config.filters.for_validation()
    config = config.model_copy(update={"root": Path(), "filters": filters, which: tuple(texts)})
    fingerprint = _fingerprint(texts, filters, segmentation, which)
    cache = cache_folder(config)
    directory = cache / "segmented" / fingerprint[:32]
    if anew := fault(directory, fingerprint, segmentation) is not None:
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{directory}.lock"):
                found = fault(directory, fingerprint, segmentation)
                if found is not None:  # nobody else has made it meanwhile
                    if found:
                        logger.warning("%s: %s; the text is segmented anew", directory, found)
                    write_store(directory, config, segmentation, which, fingerprint, progress)
        except OSError as error:
            raise ConfigurationError(
                f"{cache}: segmented text cannot be stored here: {reason(error)}. Set data.cache or the environment "
                "variable JOINTNMT_CACHE to a folder with room that you may write to."
            ) from error
    store = TokenStore(directory, [text.files[0] for text in texts], [text.weight for text in texts])
    level = logging.WARNING if anew and store.report.removed else logging.INFO
    logger.log(level, "%s: %s", which, store.report.render())
    return store


def cache_folder(config: DataConfig) -> Path:
    """The folder for segmented text: as configured, or else JOINTNMT_CACHE, or else in the home folder."""
    if config.cache is not None:
        return config.cache.expanduser()
    return default_cache()


def _fingerprint(texts: Sequence[ParallelText], filters: FilterConfig, segmentation: Segmentation, which: Which) -> str:
    facts: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "which": which,
        "filters": filters.plain(),
        "segmentation": segmentation.fingerprint(),
        "texts": [[text.format, text.fields, [_digest(path) for path in text.files]] for text in texts],
    }
    if any(text.tag for text in texts):
        facts["tags"] = [text.tag for text in texts]
    if len({text.files[0] for text in texts}) < len(texts):
        facts["numbered"] = True  # older stores give all texts of a file the same number
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    try:
        return f"{path.suffix}:{hash_file(path)}"
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read: {reason(error)}. Check the paths under data.") from error


def write_store(
    directory: Path,
    config: DataConfig,
    segmentation: Segmentation,
    which: Which,
    fingerprint: str,
    progress: Callable[[int], None],
) -> None:
    """Segment and filter the text of `which` into `directory`, whole or not at all."""
    partial = directory.with_name(directory.name + ".partial")
    for leftover in (partial, directory):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir()
    try:
        report = _write(partial, config, segmentation, which, progress)
        facts = {
            "fingerprint": fingerprint,
            "report": report.plain(),
            "hashes": {path.name: hash_file(path) for path in sorted(partial.iterdir())},
        }
        facts["checksum"] = checksum(facts)
        (partial / "store.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write(
    partial: Path, config: DataConfig, segmentation: Segmentation, which: Which, progress: Callable[[int], None]
) -> FilterReport:
    """Write `pairs.arrow` and `lengths.bin`."""
    texts: tuple[ParallelText, ...] = getattr(config, which)
    report = FilterReport()
    pair_filter = PairFilter(config.filters, report)
    pa = _pyarrow()
    schema = _schema(with_text=which == "validation")
    chunks = _chunks(read_pairs(texts, config, report))
    written = 0
    with (
        closing(segment_chunks(chunks, segmentation, _num_processes(config, texts))) as segmented,
        pa.OSFile(str(partial / "pairs.arrow"), "wb") as pairs_file,
        pa.ipc.new_stream(pairs_file, schema) as writer,
        (partial / "lengths.bin").open("wb") as lengths_file,
    ):
        for chunk, ids in segmented:
            origins = [pair.origin for pair in chunk]
            kept = pair_filter.keep(ids.source_lengths, ids.target_lengths, ids.digests, origins.__getitem__)
            writer.write_batch(_record_batch(chunk, ids, schema).filter(pa.array(kept)))
            lengths_file.write(np.stack([ids.source_lengths, ids.target_lengths], axis=1)[kept].tobytes())
            progress(written + len(chunk))
            if written // 1_000_000 < (written := written + len(chunk)) // 1_000_000:
                logger.info("%s: %s pairs segmented", which, f"{written:,}")
    if not report.kept:
        raise DataError(
            f"data.{which}: no pair is left to use. {report.render()}\nCheck the text and the limits in data.filters."
        )
    return report


def _schema(with_text: bool) -> Any:
    pa = _pyarrow()
    columns = [("source", pa.list_(pa.int32())), ("target", pa.list_(pa.int32()))]
    columns += [("file", pa.int32()), ("line", pa.int64())]
    if with_text:
        columns += [("source_text", pa.string()), ("target_text", pa.string())]
    return pa.schema(columns)


def _record_batch(chunk: Sequence[Pair], ids: Segmented, schema: Any) -> Any:
    pa = _pyarrow()
    columns = {
        "source": pa.ListArray.from_arrays(_offsets(ids.source_lengths), ids.source_ids),
        "target": pa.ListArray.from_arrays(_offsets(ids.target_lengths), ids.target_ids),
        "file": [pair.text for pair in chunk],
        "line": [pair.line for pair in chunk],
        "source_text": [pair.source for pair in chunk],
        "target_text": [pair.target for pair in chunk],
    }
    return pa.record_batch([pa.array(columns[name], type=schema.field(name).type) for name in schema.names], schema)


def _offsets(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Where each row of ids begins, and the last one ends; lengths count end marks, which are not stored."""
    return np.concatenate([[0], np.cumsum(lengths - 1)]).astype(np.int32)


def _chunks(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    while chunk := list(islice(pairs, CHUNK_PAIRS)):
        yield chunk


def _num_processes(config: DataConfig, texts: Sequence[ParallelText]) -> int:
    if sum(path.stat().st_size for text in texts for path in text.files) < POOL_BYTES:
        return 1
    return config.processes or os.cpu_count() or 1
