"""Output files that a later call can resume: the facts they depend on, and how many lines of input they cover."""

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
"""Changes that are allowed on resuming: finished lines had no such fault, so they would be the same."""


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
        resume: append to the output of an interrupted call, if there is one.

    Raises:
        ConfigurationError: if that output depends on other facts, except `REMEDIES`, or another process is writing it.
    """
    part, made_of = part_of(path), facts_of_part(path)
    with naming(part), part.open("ab+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(f"{part}: another process is writing it. Wait until it has finished.") from error
        done = 0
        if resume and stream.tell():
            _check(part, made_of, facts)
            done = _cut(stream, rows_have_numbers)
            logger.info("%s: continuing after line %d", path, done)
        else:
            if stream.tell():
                logger.warning("%s: starting again from the first line; --resume would have continued it", part)
            stream.truncate(0)
        write_text(made_of, json.dumps(facts, indent=1, sort_keys=True) + "\n")
        with named_at_the_end(path, part, "; the same command with --resume continues"):
            yield writer(stream), done
            os.fsync(stream.fileno())
    made_of.unlink()


def _check(part: Path, made_of: Path, facts: Mapping[str, Any]) -> None:
    try:
        before = dict(json.loads(made_of.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        raise ConfigurationError(
            f"{part}: cannot be resumed: {made_of}, which records its input and options, is missing or damaged. "
            "Leave out --resume to start again."
        ) from None
    changed = [each for each in differences(before, json.loads(json.dumps(facts))) if not each.startswith(REMEDIES)]
    if changed := [re.sub(r": [0-9a-f]{64} -> [0-9a-f]{64}$", ": another file", each) for each in changed]:
        raise ConfigurationError(
            f"{part}: was made with another input or other options: {in_words(changed)}. Give the same ones, or leave "
            "out --resume to start again."
        )


def _cut(stream: IO[bytes], rows_have_numbers: bool) -> int:
    """Truncate what a killed process left incomplete; returns the number of input lines with complete results."""
    done = size = whole = last = 0
    stream.seek(0)
    for row in stream:
        if not row.endswith(b"\n") or b"\0" in row:  # NUL bytes are left by a system crash
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
