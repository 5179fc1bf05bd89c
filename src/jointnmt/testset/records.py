"""Results of a run on a text, one record a line, cached so that nothing is computed twice."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from jointnmt.errors import ConfigurationError, reason
from jointnmt.runs.code import TRANSLATING, code_digest
from jointnmt.runs.members import SIGN, members_of
from jointnmt.translator import Translator

logger = logging.getLogger(__name__)

FORMAT_VERSION = 3
"""Version of the format, part of every fingerprint."""

Record = dict[str, Any]
ProgressCallback = Callable[[str, int, int], None]
"""Called with the name of a task, the lines done, and the lines in total."""


@dataclass(frozen=True)
class CachedTask:
    """A computation of a run over the lines of a text."""

    name: str
    """Name of the task, such as `translating`, for progress and fingerprint."""
    facts: Mapping[str, Any]
    """Everything that the records depend on besides the run, as JSON-compatible values."""
    total: int
    """Number of records."""
    compute: Callable[[int], Iterator[Record]]
    """Yields the records after the given number, as if all were computed."""


def run_name(run: Path) -> str:
    """The name of a run's folder; for an ensemble, those of all its runs."""
    return SIGN.join(each.name or each.resolve().name for each in members_of(run))


def cached_records(translator: Translator, run: Path, task: CachedTask, progress: ProgressCallback) -> list[Record]:
    """The records of a task: from the cache, or computed, continuing after an interruption.

    They are stored in the folder `measured` of the cache, under a hash of weights, configuration, segmentation, code,
    versions and the task's facts. The result is the same as without the interruption.

    Raises:
        ConfigurationError: if the cache cannot be written.
    """
    folder = translator.experiment.data.cache_folder / "measured"
    file = folder / f"{_fingerprint(translator, task)[:32]}.jsonl"
    what = f"{run_name(run)}: {task.name}"
    with _naming(file):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("%s: another process computes it; waiting for its result", what)
            lock.acquire()
    try:
        return _completed(file, task, what, progress)
    finally:
        lock.release()


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Turn errors of writing records, not of computing them, into messages with the file and what to do."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{file}: results cannot be cached here: {reason(error)}. Set data.cache or the environment variable "
            "JOINTNMT_CACHE to a folder that you can write to, with enough space."
        ) from error


def _completed(file: Path, task: CachedTask, what: str, progress: ProgressCallback) -> list[Record]:
    with _naming(file):
        lines, damaged = _whole_lines(file)
    if damaged:
        logger.warning("%s: damaged from line %d on, which is computed again", file, len(lines) + 1)
    records = [json.loads(line)[1] for line in lines]
    if len(records) == task.total:
        logger.debug("%s: cached (%s)", what, file)
        return records
    if records:
        logger.info("%s: resumes after %d of %d lines", what, len(records), task.total)
    with _naming(file):
        stream = file.open("ab")
    with stream:
        with _naming(file):
            stream.truncate(sum(map(len, lines)))
        progress(what, len(records), task.total)  # the time of the first record counts
        for record in task.compute(len(records)):
            with _naming(file):
                stream.write(_line(record, len(records)))
                stream.flush()
            records.append(record)
            progress(what, len(records), task.total)
    return records


def _line(record: Record, number: int) -> bytes:
    """A record as a line, with a checksum over record and number, to detect changed and moved lines."""
    text = json.dumps(record, ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(f"{number} {text}".encode()).hexdigest()[:16]
    return f'["{digest}", {text}]\n'.encode()


def _whole_lines(file: Path) -> tuple[list[bytes], bool]:
    """The lines before the first damaged one, and whether the damage is more than a killed process leaves.

    A killed process leaves a last line without its end.
    """
    lines: list[bytes] = []
    for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
        try:
            if line != _line(json.loads(line)[1], len(lines)):
                return lines, line.endswith(b"\n")
        except (ValueError, TypeError, LookupError, RecursionError):
            return lines, line.endswith(b"\n")
        lines.append(line)
    return lines, False


def _fingerprint(translator: Translator, task: CachedTask) -> str:
    alone = ["alone"] * (translator.max_cells == 1)  # other sizes only change rounding
    facts = {
        "format": FORMAT_VERSION,
        **translator.facts(),
        "computed": [translator.device.type, translator.precision, version("torch"), version("jointnmt"), *alone],
        "code": code_digest(translator.model, TRANSLATING),
        "work": [task.name, dict(task.facts)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
