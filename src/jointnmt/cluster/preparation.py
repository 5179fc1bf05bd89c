"""Segmentation of text by the workers of a Ray cluster, in place of the processes of one machine in `jointnmt.data`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from jointnmt.cluster.session import room_for_workers
from jointnmt.errors import JointNMTError, LostProcessError

Job = TypeVar("Job")
Done = TypeVar("Done")

RETRIES = 5
"""How often a job is retried after its worker has died, so that one that kills every worker is finally an error."""

STOP_SECONDS = 10
"""How long running jobs may take to stop, when the rest is not wanted."""


class RayPool:
    """Workers of the connected cluster, with one core each; the job of one that dies is done by another.

    They must see the files of the jobs under the same paths.
    """

    def __init__(self, workers: int | None = None) -> None:
        """Use at most so many workers; None: as many as the cluster has room for."""
        self._workers = workers

    def map(self, function: Callable[[Job], Done], jobs: Sequence[Job]) -> Generator[Done, None, None]:
        """See `jointnmt.data.pool.Pool.map`."""
        # Tasks, not actors: a queued call of an actor that is given up can abort this process (ray-project/ray#54260).
        work: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(_work)
        reference = ray.put(function)
        most = self._workers or 2 * max(room_for_workers("cpu", 1)[0], 1)  # each worker has one more job queued
        waiting: deque[Any] = deque()
        try:
            for job in jobs:
                waiting.append(work.remote(reference, job))
                if len(waiting) >= most:
                    yield ray.get(waiting.popleft())
            while waiting:
                yield ray.get(waiting.popleft())
        except RayTaskError as error:
            if isinstance(error.cause, JointNMTError):
                raise error.cause from None
            raise
        except RayError as error:
            raise LostProcessError(
                f"The Ray cluster has repeatedly lost a worker that segments text: {error} The same command continues "
                "from what is done."
            ) from error
        finally:
            for each in waiting:
                ray.cancel(each)
            if waiting:
                ray.wait(list(waiting), num_returns=len(waiting), timeout=STOP_SECONDS, fetch_local=False)


def _work(function: Callable[[Job], Done], job: Job) -> Done:
    return function(job)
