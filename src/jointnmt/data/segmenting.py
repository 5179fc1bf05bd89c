"""Segmenting a stream of sentence pairs with several processes, in order."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jointnmt.data.corpus import Pair
from jointnmt.errors import DataError
from jointnmt.interruption import STOP_SIGNALS

if TYPE_CHECKING:
    from jointnmt.text.segmentation import Segmentation


@dataclass(frozen=True)
class Segmented:
    """A chunk of n sentence pairs as piece ids, without begin and end marks, one pair after the other."""

    source_ids: npt.NDArray[np.int32]
    target_ids: npt.NDArray[np.int32]
    source_lengths: npt.NDArray[np.int32]
    """`[n]`, end mark counted: one more than a pair has ids."""
    target_lengths: npt.NDArray[np.int32]
    digests: npt.NDArray[np.uint64]
    """`[n]`, a hash of both texts."""


def segment(segmentation: Segmentation, sources: Sequence[str], targets: Sequence[str]) -> Segmented:
    """Segment the two sides of a chunk."""
    source_ids, source_lengths = _flat(segmentation.source.encode_ids_batch(list(sources)))
    target_ids, target_lengths = _flat(segmentation.target.encode_ids_batch(list(targets)))
    digests = b"".join(_digest(source, target) for source, target in zip(sources, targets, strict=True))
    return Segmented(source_ids, target_ids, source_lengths, target_lengths, np.frombuffer(digests, dtype=np.uint64))


def segment_chunks(
    chunks: Iterator[list[Pair]], segmentation: Segmentation, processes: int
) -> Generator[tuple[list[Pair], Segmented], None, None]:
    """Each chunk and its ids, in order; at most two chunks for each process are under way at a time.

    Raises:
        DataError: if a process dies, for want of memory, say.
    """
    if processes == 1:
        for chunk in chunks:
            yield chunk, segment(segmentation, *_sides(chunk))
        return
    # Processes are spawned, not forked: a fork of a process with threads, such as those of torch, may hang.
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(segmentation,)
    )
    waiting: deque[tuple[list[Pair], Future[Segmented]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(_segment_in_worker, *_sides(chunk))))
            if len(waiting) >= 2 * processes:
                oldest, future = waiting.popleft()
                yield oldest, future.result()
        for oldest, future in waiting:
            yield oldest, future.result()
    except BrokenProcessPool as error:
        raise DataError(
            "A process that segments text ended early: it may have been killed for want of memory, or the script that "
            'started it lacks `if __name__ == "__main__":`. Set data.processes=1 to do without such processes.'
        ) from error
    except (KeyboardInterrupt, GeneratorExit):  # the latter: whoever takes the results was interrupted
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # or the end of the pool would wait for the chunks under way
        raise
    finally:
        pool.shutdown(cancel_futures=True)


_worker_segmentation: Segmentation | None = None
"""Set once in each worker process, so that it is not sent with every chunk."""


def _start_worker(segmentation: Segmentation) -> None:
    global _worker_segmentation
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # they are for the parent, which stops its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker_segmentation = segmentation


def _end_with_parent() -> None:
    """End this process when its parent ends, even by kill -9: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _segment_in_worker(sources: list[str], targets: list[str]) -> Segmented:
    assert _worker_segmentation is not None
    return segment(_worker_segmentation, sources, targets)


def _sides(chunk: Sequence[Pair]) -> tuple[list[str], list[str]]:
    return [pair.source for pair in chunk], [pair.target for pair in chunk]


def _flat(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """All ids in one array, and the length of each row, end mark counted."""
    lengths = np.fromiter((len(row) + 1 for row in rows), dtype=np.int32, count=len(rows))
    ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()) - len(rows))
    return ids, lengths


def _digest(source: str, target: str) -> bytes:
    # NUL cannot stand in a text (see `read_pairs`), so no two pairs run together to the same bytes.
    return hashlib.blake2b(f"{source}\0{target}".encode(), digest_size=8).digest()
