"""A clean copy of checked texts, and the list of removed pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from jointnmt.data.quality.check import CheckedText
from jointnmt.data.quality.problems import NUMBERS
from jointnmt.errors import ConfigurationError
from jointnmt.files import replaced

REMOVED = "removed.tsv"
"""File of the removed pairs: place, reason, source, target."""

UNFINISHED = ".new-"
"""Beginning of the names of folders that a killed process may have left."""


def check_folder(directory: Path, overwrite: bool = False) -> None:
    """Check before the work that a folder is new or empty, or may be overwritten.

    Raises:
        ConfigurationError: if it is not.
    """
    nearest = next(each for each in (directory, *directory.parents) if each.exists())
    if not nearest.is_dir():
        raise ConfigurationError(f"{nearest}: is not a folder. Choose another name.")
    there = (path for path in directory.iterdir() if not path.name.startswith(UNFINISHED)) if directory.is_dir() else ()
    if not overwrite and any(there):
        raise ConfigurationError(f"{directory}: is not empty. Choose another folder, or add --overwrite.")


def check_not_read(written: Iterable[Path], checked: Sequence[CheckedText]) -> None:
    """Refuse to overwrite the files of checked texts, which are still read while others are written.

    Raises:
        ConfigurationError: naming the file.
    """
    read = {file.resolve() for each in checked for file in each.text.files}
    for path in written:
        if path.resolve() in read:
            raise ConfigurationError(f"{path}: is one of your files and would be overwritten. Choose another folder.")


@contextmanager
def new_files(paths: Sequence[Path], errors: str = "strict") -> Iterator[list[TextIO]]:
    """Text files for writing, which get their names when all are complete; after an error, old files stay unchanged.

    Raises:
        ConfigurationError: if two of them are the same.
    """
    if twice := [path for number, path in enumerate(paths) if path in paths[:number]]:
        raise ConfigurationError(f"{twice[0]}: would be written twice. Give two different names.")
    with ExitStack() as named, ExitStack() as opened:  # all are closed before the first gets its name
        unfinished = [named.enter_context(replaced(path, shared=True)) for path in paths]
        yield [
            opened.enter_context(path.open("w", encoding="utf-8", errors=errors, newline="\n")) for path in unfinished
        ]


def write_clean(checked: Sequence[CheckedText], directory: Path, languages: tuple[str, str]) -> dict[str, int]:
    """Write the pairs without a problem as `PART.LANGUAGE`, and all others, with their reasons, to `removed.tsv`.

    Files are UTF-8, a sentence a line, without byte order marks; white space within a line becomes one space.

    Returns:
        Number of pairs of each part.

    Raises:
        ConfigurationError: if one of these files would overwrite a checked one.
    """
    parts = list(dict.fromkeys(each.text.part for each in checked))
    written = [directory / f"{part}.{language}" for part in parts for language in languages]
    check_not_read([*written, directory / REMOVED], checked)
    directory.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    for part in parts:
        counts[part] = sum(int(each.good.sum()) for each in checked if each.text.part == part)
        texts = (each for each in checked if each.text.part == part)
        pairs = ((pair.source, pair.target) for text in texts for pair in text.good_pairs())
        write_pairs(pairs, (directory / f"{part}.{languages[0]}", directory / f"{part}.{languages[1]}"))
    write_removed(checked, directory / REMOVED)
    return counts


def write_removed(checked: Sequence[CheckedText], path: Path) -> None:
    """Write the pairs that have a problem: place, reason, source, target."""
    names = {number: name for name, number in NUMBERS.items()}
    with new_files([path], errors="replace") as (stream,):
        for each in checked:
            for pair, number in zip(each.text.pairs(), each.problems.tolist(), strict=True):
                if number:
                    place = f"{each.text.files[0]}:{pair.line}"
                    sides = (" ".join(text.split()) for text in (pair.source, pair.target))
                    stream.write("\t".join([place, names[number], *sides]) + "\n")


def write_pairs(pairs: Iterable[tuple[str, str]], paths: tuple[Path, Path]) -> None:
    """Write sentence pairs to two files, a sentence a line; white space within a line becomes one space."""
    with new_files(paths) as streams:
        for pair in pairs:
            for stream, text in zip(streams, pair, strict=True):
                stream.write(" ".join(text.split()) + "\n")
