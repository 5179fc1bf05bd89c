"""Segmentation of text by the workers of a Ray cluster, in place of the processes of one machine in `jointnmt.data`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util import ActorPool

from jointnmt.cluster.session import room_for_workers
from jointnmt.errors import JointNMTError, LostProcessError

Job = TypeVar("Job")
Done = TypeVar("Done")

RETRIES = 5
"""How often a job is retried after its worker has died, so that one that kills every worker is finally an error."""


class RayPool:
    """Workers of the connected cluster, with one core each; one that dies is replaced.

    They must see the files of the jobs under the same paths.
    """

    def __init__(self, workers: int | None = None) -> None:
        """Use so many workers; None: as many as the cluster has room for."""
        self._workers = workers

    def map(self, function: Callable[[Job], Done], jobs: Sequence[Job]) -> Generator[Done, None, None]:
        """See `jointnmt.data.pool.Pool.map`."""
        count = min(self._workers or max(room_for_workers("cpu", 1)[0], 1), len(jobs))
        reference = ray.put(function)
        worker: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=RETRIES)(_Worker)
        actors = [worker.remote(reference) for _ in range(count)]
        pool: Any = ActorPool([*actors, *actors])  # each has one more job queued
        try:
            yield from pool.map(lambda actor, job: actor.work.remote(job), jobs)
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
            # Workers end without handles. ray.kill can abort this process if jobs are queued (ray-project/ray#54260).
            del actors, pool


class _Worker:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def work(self, job: Any) -> Any:
        return self._function(job)
