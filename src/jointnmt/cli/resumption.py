"""Output files that a later call resumes: what they were made of, and how many lines of input they cover."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from jointnmt.cli.lines import facts_of_part, named_at_the_end, naming, part_of, writer
from jointnmt.config import differences, in_words
from jointnmt.errors import ConfigurationError
from jointnmt.files import write_text

logger = logging.getLogger(__name__)

Write = Callable[[str], None]

REMEDIES = ("options.split: never -> long", "options.on_invalid: error -> ")
"""What may change on resuming: lines that are done had no such fault, and are what they would be."""


@contextmanager
def resumable_output(
    path: Path, facts: Mapping[str, Any], rows_have_numbers: bool, resume: bool
) -> Iterator[tuple[Write, int]]:
    """A function that writes a line, and how many lines of input are done already: 0 without `resume`.

    Until it is finished, its lines are in `NAME.part`, and the `facts` that they depend on in `NAME.part.json`.

    Args:
        path: the file.
        facts: everything that the results depend on, as JSON-compatible values.
        rows_have_numbers: a line of input may have several rows, each of which begins with its number and a tab.
        resume: append to what an interrupted call has left, if there is something.

    Raises:
        ConfigurationError: if that was made of other facts, but for `REMEDIES`, or another process is writing it.
    """
    part, made_of = part_of(path), facts_of_part(path)
    with naming(part), part.open("ab+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(f"{part}: another process is writing it. Wait for its end.") from error
        done = 0
        if resume and stream.tell():
            _check(part, made_of, facts)
            done = _cut(stream, rows_have_numbers)
            logger.info("%s: goes on after line %d", path, done)
        else:
            if stream.tell():
                logger.warning("%s: of an interrupted call, is begun again; --resume would have gone on", part)
            stream.truncate(0)
        write_text(made_of, json.dumps(facts, indent=1, sort_keys=True) + "\n")
        with named_at_the_end(path, part, "; the same command with --resume goes on"):
            yield writer(stream), done
            os.fsync(stream.fileno())
    made_of.unlink()


def _check(part: Path, made_of: Path, facts: Mapping[str, Any]) -> None:
    try:
        before = dict(json.loads(made_of.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        raise ConfigurationError(
            f"{part}: cannot be resumed: {made_of}, which says what it was made of, is missing or damaged. "
            "Leave --resume out to begin again."
        ) from None
    changed = [each for each in differences(before, json.loads(json.dumps(facts))) if not each.startswith(REMEDIES)]
    if changed := [re.sub(r": [0-9a-f]{64} -> [0-9a-f]{64}$", ": another file", each) for each in changed]:
        raise ConfigurationError(
            f"{part}: was made of something else: {in_words(changed)}. Give what it was made of, or leave --resume "
            "out to begin again."
        )


def _cut(stream: IO[bytes], rows_have_numbers: bool) -> int:
    """Cut off what a killed process has left incomplete; the number of input lines whose results are whole."""
    done = size = whole = last = 0
    stream.seek(0)
    for row in stream:
        if not row.endswith(b"\n") or b"\0" in row:  # the latter where the system went down
            break
        number = int(row.split(b"\t")[0]) if rows_have_numbers else last + 1
        if rows_have_numbers and number != last:  # only the next number shows that a line has all its rows
            done, whole = last, size
        last, size = number, size + len(row)
        if not rows_have_numbers:
            done, whole = last, size
    stream.truncate(whole)
    stream.seek(0, os.SEEK_END)
    return done
