"""Standard input and output, and files of results."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jointnmt.compression import compression_of, plain_name
from jointnmt.data.corpus import lines_of_stream
from jointnmt.data.lines import lines_or_errors, text_lines
from jointnmt.errors import ConfigurationError, DataError

logger = logging.getLogger(__name__)

STANDARD_INPUT = "standard input"


def input_lines(path: Path | None) -> Iterator[str | DataError]:
    """The lines of a plain or compressed file, or of standard input, as they are read; an error for an invalid line.

    Raises:
        DataError: if the file cannot be read.
    """
    if path is not None:
        return lines_or_errors(path, str(path))
    return lines_or_errors(lines_of_stream(sys.stdin.buffer, STANDARD_INPUT), STANDARD_INPUT)


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[str], None]]:
    """A function that writes a line to a file, or to standard output, at once.

    A file gets its name when it is complete: until then, or after an error, its lines are in `NAME.part`.

    Raises:
        ConfigurationError: if standard output is closed.
    """
    if path is None:
        if sys.stdout is None:
            raise ConfigurationError("Standard output is closed. Name a file by --out.")
        yield writer(sys.stdout.buffer)
        return
    if path.exists() and not path.is_file():  # a pipe or device must be written to, not replaced
        with naming(path), path.open("wb") as stream:
            yield writer(stream)
        return
    unfinished = part_of(path)
    with naming(unfinished), unfinished.open("wb") as stream, named_at_the_end(path, unfinished):
        yield writer(stream)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to errors, including the one from closing a stream whose last line could not be written."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def part_of(path: Path) -> Path:
    """The path `NAME.part` of an unfinished output, beside the file itself, not beside a link to it."""
    path = _linked(path)
    return path.with_name(f"{path.name}.part")


def facts_of_part(path: Path) -> Path:
    """The path `NAME.part.json` of the facts that an unfinished output depends on."""
    path = _linked(path)
    return path.with_name(f"{path.name}.part.json")


def _linked(path: Path) -> Path:
    """The target of a symbolic link; any other path unchanged."""
    return path.resolve() if path.is_symlink() else path


@contextmanager
def named_at_the_end(path: Path, unfinished: Path, advice: str = "") -> Iterator[None]:
    """Rename an unfinished file on success; after an error, log where the lines so far are, and some `advice`."""
    try:
        yield
    except BaseException:
        logger.warning("%s: is not finished; the lines so far are in %s%s", path, unfinished, advice)
        raise
    unfinished.replace(_linked(path))


def check_output(path: Path | None, read: Sequence[Path | None] = (), is_model: bool = False) -> None:
    """Check before the work that its result can be written.

    Args:
        path: the file; None: standard output.
        read: the inputs, which must not be overwritten.
        is_model: whether the result is weights, which may replace those of a run.

    Raises:
        ConfigurationError: if it is a folder, its folder does not exist, it is one of the inputs or belongs to a run,
            or it is named - or has the name of a compressed file.
    """
    if path is None:
        return
    if str(path) == "-":
        raise ConfigurationError("- names no file: leave it out to write to standard output, or give ./- for a file.")
    if path.is_dir():
        raise ConfigurationError(f"{path}: is a folder, and the result is one file. Name the file.")
    for written in (path, part_of(path), facts_of_part(path)):
        if written.is_file() and any(each is not None and each.is_file() and each.samefile(written) for each in read):
            raise ConfigurationError(
                f"{written}: is an input, and the result would overwrite it. Name another file for {path}."
            )
    _check_is_of_no_run(path, is_model)
    if compression_of(path):
        raise ConfigurationError(f"{path}: results are not compressed. Name {plain_name(path)}, and compress it after.")
    if not path.parent.is_dir():
        raise ConfigurationError(f"{path}: there is no folder {path.parent} to write to. Create it first.")


def _check_is_of_no_run(path: Path, is_model: bool) -> None:
    """Refuse to write over a file of a run.

    Raises:
        ConfigurationError: naming the run.
    """
    from jointnmt.runs.directory import RunDirectory

    for run in (RunDirectory(folder) for folder in path.resolve().parents[:2]):  # a file is in it, or in its folders
        is_weights = path.resolve() == run.model.resolve()
        if run.experiment.is_file() and (run.owns(path) or (is_weights and not is_model)):
            raise ConfigurationError(f"{path}: belongs to the run {run.path}. Name another file.")


def check_parallel(source: Path, target: Path) -> None:
    """Check before the work that two files have as many lines; those of pipes are counted as they are read.

    Raises:
        DataError: if one has more, or cannot be read.
    """
    if source.is_file() and target.is_file():
        of_source, of_target = (sum(1 for _ in text_lines(path)) for path in (source, target))
        if of_source != of_target:
            raise DataError(
                f"{source} and {target} are not parallel: {of_source} and {of_target} lines. Line i of one must go "
                "with line i of the other: check that both are complete."
            )


def check_output_folder(path: Path) -> None:
    """Check before the work that its results can be written to a folder, which need not exist yet.

    Raises:
        ConfigurationError: if it, or a folder above it, is a file.
    """
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise ConfigurationError(f"{there}: is a file, but figures and numbers go to a folder. Choose another name.")


def writer(stream: IO[bytes]) -> Callable[[str], None]:
    """A function that writes a line to a stream and flushes it."""

    def write(line: str) -> None:
        try:
            stream.write(line.encode("utf-8") + b"\n")
            stream.flush()
        except OSError as error:
            error.filename = error.filename or stream.name
            raise

    return write
