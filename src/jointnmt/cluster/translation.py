"""A corpus translated by a pool of workers: what is left to do, who does it, and what becomes of it.

Ray Data keeps the pool, hands shards to workers, replaces those that die and gives their shards to others. That a shard
is there once, however often it was begun, is due to how it is written (`Folder`).
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
from jointnmt.errors import ConfigurationError, DataError, JointNMTError, ModelError
from jointnmt.runs.storage import HIDDEN, Folder
from jointnmt.translator import Translator
from jointnmt.translator.options import LoadOptions
from jointnmt.translator.preprocessing import tagged

logger = logging.getLogger(__name__)

MADE_OF = "_job.json"
"""The file of a folder that says what its shards are made of."""

ERRORS = {error.exit_code: error for error in (ConfigurationError, DataError, ModelError)}


@dataclass(frozen=True)
class Workers:
    """Who works."""

    count: int | None = None
    """None: as many as the cluster has GPUs, or else room for."""
    cpus: int = 1
    """Of each."""
    address: str | None = None
    """Of a cluster; None: this machine."""


@dataclass(frozen=True)
class CorpusTranslated:
    """What became of a corpus."""

    rows: int
    before: int
    """Of those, translated by earlier calls."""
    untranslated: int


def translate_corpus(
    model: Translator,
    job: CorpusJob,
    shard_rows: int,
    workers: Workers,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CorpusTranslated:
    """Translate what is not translated yet.

    Args:
        model: loaded from a RUN directory, or from several, by which it is sent to the workers.
        job: what, how, and where to.
        shard_rows: most rows of a shard.
        workers: who works.
        progress: is told how many of how many rows are done.

    Raises:
        ConfigurationError: if the folder has what was made of something else, or the model has no such options.
        DataError: if the input cannot be read, or is not what it was.
        LostProcessError: if Ray cannot be started.
        ModelError: if its output is not a number.
    """
    out = Folder(job.out)
    list(tagged([], job.options.tag, model.segmentation.source.tags))  # refuses a tag that it has not learnt
    files = job.corpus.index(shard_rows)
    facts = {**model.facts(), **_facts(job), "shard_rows": shard_rows, "input": job.corpus.facts(files)}
    _check_folder(out, facts)
    shards, there = shards_of(files, shard_rows), out.names()
    left = [shard for shard in shards if job.name(shard.number) not in there]
    total, missing = sum(shard.rows for shard in shards), sum(shard.rows for shard in left)
    if left:
        if missing < total:
            logger.info("%s: goes on after %d of %d rows", job.out, total - missing, total)
        with connected(workers.address):
            room = _room(job, len(left), workers)
            _claim(out, facts)  # not before there is somebody to work
            progress(total - missing, total)
            for rows in accumulate(_translated(model, job, left, room)):
                progress(total - missing + rows, total)
    else:
        _claim(out, facts)
    out.tidy()
    return CorpusTranslated(total, total - missing, _count_untranslated(out))


class _Room(NamedTuple):
    """What the workers of a job get."""

    workers: int
    cpus: int
    gpus: int
    """Of each worker."""


def _room(job: CorpusJob, shards: int, workers: Workers) -> _Room:
    """What there is in the cluster that is connected.

    Raises:
        ConfigurationError: if this machine has fewer cores than a worker is to have.
    """
    room, gpus = room_for_workers(job.load.device, workers.cpus)
    if not room and workers.address is None:
        raise ConfigurationError(f"This machine has fewer than the {workers.cpus} cores of --worker-cpus.")
    size = min(workers.count or max(room, 1), shards)
    logger.info("%d shards for %d workers", shards, size)
    if size > room:
        logger.warning("there is room for %d workers now; the others begin when there is more", room)
    return _Room(size, workers.cpus, gpus)


def _translated(model: Translator, job: CorpusJob, shards: Sequence[Shard], room: _Room) -> Iterator[int]:
    """Translate shards; yields the rows of each when it is done."""
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
    """The translator of a worker; it asks Ray for the model, which its machine may not have."""
    import ray

    return load_packed(ray.get(reference), options, threads)


def _check(outcome: dict[str, Any]) -> None:
    """Raise what a worker has met with."""
    if outcome["error"]:
        raise ERRORS.get(outcome["exit_code"], JointNMTError)(outcome["error"])


def _facts(job: CorpusJob) -> dict[str, Any]:
    """What of a job decides its output, besides the model and the input."""
    options = asdict(job.options)
    options["search"] = job.options.search and job.options.search.plain()
    return {"options": options, "device": job.load.device, "precision": job.load.precision}


def _claim(out: Folder, facts: dict[str, Any]) -> None:
    """Make a folder that of these facts.

    Raises:
        ConfigurationError: as of `_check_folder`: another call may have been faster.
    """
    out.create(MADE_OF, (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())
    _check_folder(out, facts)


def _check_folder(out: Folder, facts: dict[str, Any]) -> None:
    """See that a folder is empty, or that of these facts.

    Raises:
        ConfigurationError: if it is that of others, or of nobody knows what.
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
            f"{out.address}: {MADE_OF}, which says what is in the folder, is damaged ({error}). Name another by --out."
        ) from error
    if changed := differences(before, json.loads(json.dumps(facts))):
        raise ConfigurationError(
            f"{out.address}: was made of something else: {in_words(changed)}. Give what it was made of, or name "
            "another folder by --out."
        )


def _count_untranslated(out: Folder) -> int:
    return sum((out.read(f"{UNTRANSLATED}/{name}") or b"").count(b"\n") for name in out.names(UNTRANSLATED))
