"""A clean copy of checked texts, and an account of what it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from jointnmt.data.quality.check import CheckedText
from jointnmt.data.quality.problems import NUMBERS
from jointnmt.errors import ConfigurationError

REMOVED = "removed.tsv"
"""The file of what was left out: place, reason, source, target."""


def check_folder(directory: Path, overwrite: bool = False) -> None:
    """Find out before the work whether a folder may be written to: it is new or empty, or may be overwritten.

    Raises:
        ConfigurationError: if not.
    """
    if directory.exists() and not directory.is_dir():
        raise ConfigurationError(f"{directory}: is no folder. Choose another name.")
    if not overwrite and directory.is_dir() and any(directory.iterdir()):
        raise ConfigurationError(f"{directory}: is not empty. Choose another folder, or say --overwrite.")


def write_clean(checked: Sequence[CheckedText], directory: Path, languages: tuple[str, str]) -> dict[str, int]:
    """Write the pairs without a problem as `PART.LANGUAGE`, and all others, with their reasons, to `removed.tsv`.

    Files are UTF-8, a sentence a line, without byte order marks; white space within a line becomes one space.

    Returns:
        Pairs of each part.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written: dict[str, int] = {}
    names = {number: name for name, number in NUMBERS.items()}
    with ExitStack() as stack:
        removed = stack.enter_context((directory / REMOVED).open("w", encoding="utf-8", newline="\n"))
        sides = {
            part: [
                stack.enter_context((directory / f"{part}.{language}").open("w", encoding="utf-8", newline="\n"))
                for language in languages
            ]
            for part in dict.fromkeys(each.text.part for each in checked)
        }
        for each in checked:
            written.setdefault(each.text.part, 0)
            for pair, number in zip(each.text.pairs(), each.problems.tolist(), strict=True):
                texts = [" ".join(text.split()) for text in (pair.source, pair.target)]
                if number:
                    place = f"{each.text.files[0]}:{pair.line}"
                    removed.write("\t".join([place, names[number], *texts]).replace("\ufffd", "?") + "\n")
                    continue
                written[each.text.part] += 1
                for stream, text in zip(sides[each.text.part], texts, strict=True):
                    stream.write(text + "\n")
    return written


def write_pairs(pairs: Iterable[tuple[str, str]], paths: tuple[Path, Path]) -> None:
    """Write sentence pairs to two files, a sentence a line."""
    with paths[0].open("w", encoding="utf-8", newline="\n") as source:
        with paths[1].open("w", encoding="utf-8", newline="\n") as target:
            for first, second in pairs:
                source.write(first + "\n")
                target.write(second + "\n")
