"""Pools of workers that prepare a corpus: this process, several, or anything else that maps a function over jobs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

from jointnmt.errors import LostProcessError
from jointnmt.interruption import STOP_SIGNALS

Job = TypeVar("Job")
Done = TypeVar("Done")


class Pool(Protocol):
    """Runs independent jobs."""

    def map(self, function: Callable[[Job], Done], jobs: Sequence[Job]) -> Generator[Done, None, None]:
        """The function's results, in the order of the jobs; function, jobs and results may be sent to processes.

        Closing the generator stops the work at once.

        Raises:
            LostProcessError: if a process dies.
        """


class ThisProcess:
    """Runs one job after the other in this process."""

    def map(self, function: Callable[[Job], Done], jobs: Sequence[Job]) -> Generator[Done, None, None]:
        """See `Pool.map`."""
        yield from map(function, jobs)


class Processes:
    """Several processes of this machine; at most two jobs for each are submitted at a time."""

    def __init__(self, count: int) -> None:
        self._count = count

    def map(self, function: Callable[[Job], Done], jobs: Sequence[Job]) -> Generator[Done, None, None]:
        """See `Pool.map`."""
        # Processes are spawned, not forked: a fork of a process with threads, such as those of torch, may hang.
        others = set(multiprocessing.active_children())
        count = min(self._count, len(jobs))
        pool = ProcessPoolExecutor(
            count, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(function,)
        )
        waiting: deque[Future[Done]] = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(_work, job))
                if len(waiting) >= 2 * count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise LostProcessError(
                "A process that segments text ended early: it may have been killed for lack of memory, or the script "
                'that started it lacks `if __name__ == "__main__":`. The same command continues from what is done; '
                "data.processes=1 uses no further processes."
            ) from error
        except (KeyboardInterrupt, GeneratorExit):  # the latter: the consumer was interrupted
            for process in set(multiprocessing.active_children()) - others:
                process.kill()  # otherwise the pool's exit would wait for running jobs
            raise
        finally:
            pool.shutdown(cancel_futures=True)


_function: Callable[[Any], Any] | None = None
"""Set once in each worker process, so that it is not sent with every job."""


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _function
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # they are for the parent, which stops its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _function = function


def _end_with_parent() -> None:
    """End this process when its parent ends, even by kill -9, as it would otherwise wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(job: Any) -> Any:
    assert _function is not None
    return _function(job)
