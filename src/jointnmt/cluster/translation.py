"""Translation of a corpus by a pool of workers.

Ray Data keeps the pool, assigns shards to workers, replaces those that die and gives their shards to others. Atomic
writing (`Folder`) ensures that a shard exists once, however often it was started.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, cast

from jointnmt.cluster.corpus import Shard, shards_of
from jointnmt.cluster.session import connected, room_for_workers
from jointnmt.cluster.shards import UNTRANSLATED, CorpusJob, ShardTranslator, load_packed, packed
from jointnmt.config import differences, in_words
from jointnmt.errors import (
    ConfigurationError,
    DataError,
    JointNMTError,
    LostProcessError,
    MissingPackageError,
    ModelError,
)
from jointnmt.runs.storage import HIDDEN, Folder
from jointnmt.translator import Translator
from jointnmt.translator.options import LoadOptions
from jointnmt.translator.preprocessing import tagged

logger = logging.getLogger(__name__)

MADE_OF = "_job.json"
"""File in the output folder with the facts on which its shards depend."""

ERRORS = {
    error.exit_code: error
    for error in (ConfigurationError, DataError, ModelError, MissingPackageError, LostProcessError)
}
"""Errors that a worker may return, by their exit codes."""


@dataclass(frozen=True)
class Workers:
    """Number, cores and cluster of the workers."""

    count: int | None = None
    """Number of workers; None: one for each GPU of the cluster, or else as many as it has room for."""
    cpus: int = 1
    """Cores of each worker."""
    address: str | None = None
    """Address of a cluster; None: this machine."""


@dataclass(frozen=True)
class CorpusTranslated:
    """Result of translating a corpus, in rows."""

    rows: int
    before: int
    """Rows translated by earlier calls."""
    untranslated: int


def translate_corpus(
    model: Translator,
    job: CorpusJob,
    shard_rows: int,
    workers: Workers,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CorpusTranslated:
    """Translate the rows that are not translated yet.

    Args:
        model: a translator loaded from RUN directories, whose files are sent to the workers.
        job: input, options and output folder.
        shard_rows: most rows of a shard.
        workers: number, cores and cluster of the workers.
        progress: called with the rows done and all rows.

    Raises:
        ConfigurationError: if the folder was made with other facts, or the model does not support the options.
        DataError: if the input cannot be read, or has changed.
        LostProcessError: if Ray cannot be started.
        MissingPackageError: if a worker's machine lacks a package that the model needs.
        ModelError: if the model's output is not a number.
    """
    out = Folder(job.out)
    list(tagged([], job.options.tag, model.tags))  # refuses an unknown tag
    files = job.corpus.index(shard_rows)
    facts = {**model.facts(), **_facts(job), "shard_rows": shard_rows, "input": job.corpus.facts(files)}
    _check_folder(out, facts)
    shards, there = shards_of(files, shard_rows), out.names()
    left = [shard for shard in shards if job.name(shard.number) not in there]
    total, missing = sum(shard.rows for shard in shards), sum(shard.rows for shard in left)
    if left:
        if missing < total:
            logger.info("%s: continuing after %d of %d rows", job.out, total - missing, total)
        with connected(workers.address):
            room = _room(job, len(left), workers)
            _claim(out, facts)  # only once there are workers
            progress(total - missing, total)
            for rows in accumulate(_translated(model, job, left, room)):
                progress(total - missing + rows, total)
    else:
        _claim(out, facts)
    out.tidy()
    return CorpusTranslated(total, total - missing, _count_untranslated(out))


class _Room(NamedTuple):
    """Resources of a job's workers."""

    workers: int
    cpus: int
    gpus: int
    """GPUs of each worker."""


def _room(job: CorpusJob, shards: int, workers: Workers) -> _Room:
    """The resources for the workers in the connected cluster.

    Raises:
        ConfigurationError: if this machine has fewer cores than a worker needs.
    """
    room, gpus = room_for_workers(job.load.device, workers.cpus)
    if not room and workers.address is None:
        raise ConfigurationError(f"This machine has fewer than the {workers.cpus} cores of --worker-cpus.")
    size = min(workers.count or max(room, 1), shards)
    logger.info("%d shards for %d workers", shards, size)
    if size > room:
        logger.warning("there is room for %d workers now; the others start when there is more", room)
    return _Room(size, workers.cpus, gpus)


def _translated(model: Translator, job: CorpusJob, shards: Sequence[Shard], room: _Room) -> Iterator[int]:
    """Translate shards; yields the number of rows of each when it is done."""
    import ray
    from ray.data import ActorPoolStrategy

    runs = [member.run for member in model.members] or [Path(str(model.run))]
    load = partial(_load, ray.put(packed(runs)), job.load, room.cpus)
    done = ray.data.from_items([asdict(shard) for shard in shards], override_num_blocks=len(shards)).map(
        cast(Any, ShardTranslator),  # a class, whose instances Ray calls
        fn_constructor_args=(job, load),
        compute=ActorPoolStrategy(size=room.workers, max_tasks_in_flight_per_actor=2),
        num_cpus=room.cpus,
        num_gpus=room.gpus,
    )
    for shard in done.iter_rows():
        _check(shard)
        yield shard["rows"]


def _load(reference: Any, options: LoadOptions, threads: int) -> Translator:
    """The translator of a worker; it gets the model from Ray, as its machine may not have it."""
    import ray

    return load_packed(ray.get(reference), options, threads)


def _check(outcome: dict[str, Any]) -> None:
    """Raise the error that a worker has returned, if any."""
    if outcome["error"]:
        raise ERRORS.get(outcome["exit_code"], JointNMTError)(outcome["error"])


def _facts(job: CorpusJob) -> dict[str, Any]:
    """The facts of a job that determine its output, besides the model and the input.

    Raises:
        ConfigurationError: if the options have a constraint, which cannot be described.
    """
    options = asdict(job.options)
    if options.pop("constraint") is not None:
        raise ConfigurationError("A corpus cannot be translated with a constraint, as its folder cannot describe one.")
    options["search"] = job.options.search and job.options.search.plain()
    return {"options": options, "device": job.load.device, "precision": job.load.precision}


def _claim(out: Folder, facts: dict[str, Any]) -> None:
    """Write these facts to a folder.

    Raises:
        ConfigurationError: as in `_check_folder`, as another call may have been faster.
    """
    out.create(MADE_OF, (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())
    _check_folder(out, facts)


def _check_folder(out: Folder, facts: dict[str, Any]) -> None:
    """Check that a folder is empty, or was made with these facts.

    Raises:
        ConfigurationError: if it was made with other or unknown facts.
    """
    others = [name for name in out.names() if not name.startswith(HIDDEN)]
    if others and MADE_OF not in others:
        raise ConfigurationError(f"{out.address}: is not empty (it has {min(others)}). Name a new folder by --out.")
    if not others:
        return
    try:
        before = dict(json.loads(out.read(MADE_OF) or b""))
    except ValueError as error:
        raise ConfigurationError(
            f"{out.address}: {MADE_OF}, which describes the folder, is damaged ({error}). Name another by --out."
        ) from error
    if changed := differences(before, json.loads(json.dumps(facts))):
        raise ConfigurationError(
            f"{out.address}: was made with another input or other options: {in_words(changed)}. Give the same ones, or "
            "name another folder by --out."
        )


def _count_untranslated(out: Folder) -> int:
    return sum((out.read(f"{UNTRANSLATED}/{name}") or b"").count(b"\n") for name in out.names(UNTRANSLATED))
