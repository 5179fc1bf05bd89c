"""Segmented text: built once for each content and setting, stored on disk, memory-mapped."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from jointnmt.cores import cores_allowed
from jointnmt.data.building import Which, remove_abandoned, store_lock, unfinished_store, write_store
from jointnmt.data.corpus import DataConfig, ParallelText, unreadable
from jointnmt.data.filters import FilterConfig, FilterReport
from jointnmt.data.pool import Pool, Processes, ThisProcess
from jointnmt.data.segmenting import pyarrow
from jointnmt.data.store_check import LENGTHS, fault, shards
from jointnmt.errors import ConfigurationError, DataError, reason
from jointnmt.files import hash_file
from jointnmt.text.special import eos_id

if TYPE_CHECKING:
    from jointnmt.text.segmentation import Segmentation

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
"""Version of the format, part of a store's fingerprint: a store of another version is built again."""

POOLED_FROM_BYTES = 20_000_000
"""Total size in bytes below which files are segmented in this process, as starting others would take longer."""


class SegmentedText(Protocol):
    """Sentence pairs as piece ids, without begin and end marks."""

    @property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Pieces of every source and of every target, end marks included."""

    def pairs(self, indices: Iterable[int]) -> list[tuple[list[int], list[int]]]:
        """Source and target ids of the pairs with these numbers, in this order."""


class TokenStore:
    """Sentence pairs as piece ids, without begin and end marks, in the order of the files.

    Pairs and lengths lie on disk and are memory-mapped, so a large store takes no more memory than a small one, apart
    from pages that the system may drop at any time.
    """

    def __init__(self, directory: Path, texts: Sequence[ParallelText]) -> None:
        """Open a store that `build_store` made.

        Args:
            directory: folder of the store.
            texts: texts it was made of, with their weights, and their files as messages should name them.
        """
        self.weights = tuple(text.weight for text in texts)
        facts = json.loads((directory / "store.json").read_text(encoding="utf-8"))
        self.directory = directory
        self.fingerprint: str = facts["fingerprint"]
        """Hash of the files' content, the filters, the segmentation and the format."""
        called = facts.get("paths", ())  # older stores do not say
        files = [path for text in texts for path in text.files]
        self.report = FilterReport.parse(facts["report"]).renamed(dict(zip(called, files, strict=False)))
        """Report on the pairs that the filters removed."""
        self._files = tuple(text.files[0] for text in texts)
        self._pairs = _Rows([directory / name for name in shards(facts["hashes"])])
        self._lengths = np.memmap(directory / LENGTHS, dtype=np.int32, mode="r").reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Pieces of every source and of every target, end marks included; memory-mapped, 8 bytes a pair."""
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
            the pieces, one sentence after the other, and `[n + 1]` offsets at which each sentence begins, and the end.
        """
        for chunk in self._pairs.chunks(side):
            offsets = chunk.offsets.to_numpy().astype(np.int64)
            yield chunk.flatten().to_numpy(), offsets - offsets[0]

    def piece_counts(self, side: Literal["source", "target"], vocabulary_size: int) -> npt.NDArray[np.int64]:
        """Occurrences of each piece in the sentences of a side, `[V]`; end marks are not counted."""
        counts = np.zeros(vocabulary_size, np.int64)
        for pieces, _ in self.ids(side):
            counts += np.bincount(pieces, minlength=vocabulary_size)
        return counts

    def target_token_counts(self, vocabulary_size: int) -> npt.NDArray[np.int64]:
        """Occurrences of each piece that a model generates, `[V]`: the pieces of all targets, and their end marks."""
        counts = self.piece_counts("target", vocabulary_size)
        counts[eos_id] = len(self)
        return counts

    def text_sizes(self) -> list[int]:
        """Numbers of pairs of the texts, which follow each other."""
        counts = np.zeros(len(self._files), np.int64)
        for chunk in self._pairs.chunks("file"):
            counts += np.bincount(chunk.to_numpy(), minlength=len(counts))
        return [int(count) for count in counts]

    def origin(self, index: int) -> str:
        """Place of a pair in the files, as `file:line`."""
        ((file, line),) = self._pairs.read([index], ("file", "line"))
        return f"{self._files[file.as_py()]}:{line.as_py()}"


class _Rows:
    """The rows of Arrow streams, memory-mapped: opening them reads only where each chunk of rows begins."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._chunks: dict[str, list[Any]] = {}
        sizes = [0]
        for path in paths:
            with pyarrow().memory_map(str(path)) as stream:
                for batch in pyarrow().ipc.open_stream(stream):
                    sizes.append(batch.num_rows)
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        self._chunks.setdefault(name, []).append(column)
        self._starts = np.cumsum(sizes)

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


def build_store(
    config: DataConfig,
    segmentation: Segmentation,
    which: Which = "train",
    progress: Callable[[int], None] = lambda pairs: None,
    pool: Pool | None = None,
    quiet: bool = False,
) -> TokenStore:
    """Segment and filter the texts, or open the store that was built from the same content and settings.

    Validation text is filtered by `FilterConfig.for_validation` and keeps its raw text. Building reads the texts as
    streams: memory does not grow with their size, except for 8 bytes a kept pair while duplicates are looked for. The
    store gets its name only when it is complete; processes that build the same one wait for the first. An interrupted
    build leaves the finished blocks of lines, from which the next one continues; blocks of other settings are removed
    after a week.

    Args:
        config: the texts, filters and cache folder.
        segmentation: segmentation of the text.
        which: training or validation texts.
        progress: called with the number of pairs segmented so far.
        pool: workers; None: `config.processes` of this machine, or this process alone if the text is small.
        quiet: do not log how many pairs are kept.

    Raises:
        ConfigurationError: if there is no such text, or the cache folder cannot be written.
        DataError: if a text cannot be read (see `read_pairs`), or no pair is left.
        LostProcessError: if a process dies that segments text.
    """
    texts, filters = _texts_and_filters(config, which)
    if not texts:
        raise ConfigurationError(f"data.{which} names no text: give it at least one pair of files.")
    stamps = _stamps(texts)
    fingerprint = _fingerprint(texts, filters, segmentation, which)
    cache = config.cache_folder
    directory = cache / "segmented" / fingerprint[:32]
    if rebuilt := fault(directory, fingerprint, segmentation) is not None:
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with store_lock(directory):
                found = fault(directory, fingerprint, segmentation)
                if found is not None:  # no other process has built it meanwhile
                    if found:
                        logger.warning("%s: %s; the text is segmented again", directory, found)
                    remove_abandoned(directory.parent, directory)
                    workers = pool or _pool(config, texts)
                    with _unchanged(texts, stamps, directory):
                        write_store(directory, texts, filters, segmentation, which, fingerprint, workers, progress)
        except OSError as error:
            raise ConfigurationError(
                f"{cache}: segmented text cannot be stored here: {reason(error)}. Set data.cache or the environment "
                "variable JOINTNMT_CACHE to a folder that you can write to, with enough space."
            ) from error
    store = TokenStore(directory, texts)
    level = logging.WARNING if rebuilt and store.report.removed else logging.INFO
    if not quiet:
        logger.log(level, "%s: %s", which, store.report.render())
    return store


def text_fingerprint(config: DataConfig, segmentation: Segmentation, which: Which = "train") -> str:
    """The fingerprint of the store that `build_store` would build or open; reads the files but writes nothing.

    Raises:
        DataError: if a text cannot be read.
    """
    return _fingerprint(*_texts_and_filters(config, which), segmentation, which)


def _texts_and_filters(config: DataConfig, which: Which) -> tuple[list[ParallelText], FilterConfig]:
    texts = [config.place(text) for text in getattr(config, which)]
    return texts, config.filters if which == "train" else config.filters.for_validation()


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


@contextmanager
def _unchanged(
    texts: Sequence[ParallelText], stamps: Mapping[Path, tuple[int, int]], directory: Path
) -> Iterator[None]:
    """Context in which a store is built; it, or what an interruption leaves of it, is deleted if a text has changed.

    Raises:
        DataError: if a text has changed.
    """
    try:
        yield
    except BaseException:  # finished blocks are used by the next call
        if _changed(texts, stamps):
            _remove(directory)
        raise
    if changed := _changed(texts, stamps):
        _remove(directory)
        raise DataError(f"{changed[0]}: changed while it was read. Start again when it is complete.")


def _changed(texts: Sequence[ParallelText], stamps: Mapping[Path, tuple[int, int]]) -> list[Path]:
    """The files that have changed, or are gone."""
    try:
        now = _stamps(texts)
    except DataError:
        return list(stamps)
    return [path for path, stamp in now.items() if stamp != stamps[path]]


def _remove(directory: Path) -> None:
    """Delete a store, or what there is of it."""
    for built in (directory, unfinished_store(directory)):
        shutil.rmtree(built, ignore_errors=True)


def _stamps(texts: Sequence[ParallelText]) -> dict[Path, tuple[int, int]]:
    """Size and modification time of the files, to detect changes without reading them again.

    Raises:
        DataError: if a file does not exist.
    """
    found = {}
    for path in (path for text in texts for path in text.files):
        try:
            status = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        found[path] = status.st_size, status.st_mtime_ns
    return found


def _digest(path: Path) -> str:
    try:
        return f"{path.suffix}:{hash_file(path)}"
    except OSError as error:
        raise unreadable(path, error) from error


def _pool(config: DataConfig, texts: Sequence[ParallelText]) -> Pool:
    """Processes of this machine, or this process alone if the files are small."""
    count = config.processes or cores_allowed()
    small = sum(path.stat().st_size for text in texts for path in text.files) < POOLED_FROM_BYTES
    return ThisProcess() if small or count == 1 else Processes(count)
