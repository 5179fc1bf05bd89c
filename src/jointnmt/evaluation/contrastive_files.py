"""The files of contrastive suites: JSON, three files of lines, or folders of minimal pairs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.evaluation.contrastive_suites import JsonKind, Suite, SuiteItem, pair_items, parse_suite
from jointnmt.text.languages import language_of_file

logger = logging.getLogger(__name__)

PAIR_FILES = ("src", "tgt.correct", "tgt.incorrect")
"""Names of the files of a folder of minimal pairs; the language follows, and possibly .gz, .xz or .bz2."""


def read_suite(
    path: Path | None, files: Mapping[str, Path | None], kind: JsonKind | None
) -> tuple[Suite, list[tuple[str, str]]]:
    """Read a suite; returns it with the language pairs (source, target) that its file names allow.

    Args:
        path: JSON, or a folder of minimal pairs.
        files: instead of `path`, three files by the options that name them; all None if there is a `path`.
        kind: kind of the JSON; None: detected.

    Raises:
        ConfigurationError: if neither or both are given, a file is missing, or files that are not JSON have a `kind`.
        DataError: if the files are not a suite.
    """
    missing = [option for option, file in files.items() if file is None]
    if (path is None) == (len(missing) == len(files)):
        raise ConfigurationError("Give a SUITE, or the three files of one: --source, --right and --wrong.")
    if kind is not None and (path is None or path.is_dir()):
        raise ConfigurationError(f"--kind {kind} is for a suite as JSON; line-parallel files are of one kind only.")
    if path is None:
        if missing:
            raise ConfigurationError(f"{', '.join(missing)} is missing: a line-parallel suite is three files.")
        three = [file for file in files.values() if file is not None]
        return Suite(str(three[0]), "lines", tuple(_read_pairs(three, None))), []
    if path.is_dir():
        return _read_folder(path)
    found = parse_suite("\n".join(text_lines(path)), str(path), kind)
    return found, re.findall(r"(?<![a-z])(?=([a-z]{2})-([a-z]{2})(?![a-z]))", path.name.lower())


def _read_pairs(files: Sequence[Path], kind: str | None) -> list[SuiteItem]:
    sources, rights, wrongs = map(text_lines, files)
    return pair_items(sources, rights, wrongs, [str(file) for file in files], kind)


def _read_folder(folder: Path) -> tuple[Suite, list[tuple[str, str]]]:
    """The minimal pairs of a folder, or of all its subfolders; the folder's name is the type of error."""
    parts = [folder] if _beginning(folder, *PAIR_FILES) else sorted(path for path in folder.iterdir() if path.is_dir())
    items, languages = [], set()
    for part in parts:
        if not _beginning(part, *PAIR_FILES):
            logger.info("%s: holds no minimal pairs, and is skipped", part)
            continue
        files = [_single(part, name) for name in PAIR_FILES]
        items += _read_pairs(files, part.resolve().name)
        source, *targets = (language_of_file(file.name) for file in files)
        languages |= {(source, target) for target in targets}
    if not items:
        raise DataError(
            f"{folder}: neither here nor in its subfolders are there minimal pairs: three files src.LANGUAGE, "
            "tgt.correct.LANGUAGE and tgt.incorrect.LANGUAGE, perhaps ending in .gz, .xz or .bz2. Check the "
            "folder."
        )
    if len(languages) > 1:
        found = " and ".join("-".join(pair) for pair in sorted(languages))
        raise DataError(f"{folder}: its files have different languages ({found}). Give the folders one by one.")
    return Suite(str(folder), "lines", tuple(items)), [*languages]


def _beginning(folder: Path, *names: str) -> list[Path]:
    return sorted(
        path for path in folder.iterdir() if path.is_file() and path.name.startswith(tuple(f"{n}." for n in names))
    )


def _single(folder: Path, name: str) -> Path:
    files = _beginning(folder, name)
    if len(files) != 1:
        what = f"has {', '.join(file.name for file in files)}, one too many" if files else f"has no {name}.LANGUAGE"
        raise DataError(f"{folder}: {what}. A folder of minimal pairs has one file each of {', '.join(PAIR_FILES)}.")
    return files[0]
