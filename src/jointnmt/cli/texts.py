"""Users' own text on the command line: options that describe it, and reading and checking it with progress."""

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jointnmt.cli.console import stderr
from jointnmt.errors import ConfigurationError

if TYPE_CHECKING:
    from jointnmt.data.quality.check import CheckedText
    from jointnmt.data.quality.languages import SideLanguage

logger = logging.getLogger(__name__)

SourceLanguageOption = Annotated[
    str | None, typer.Option(metavar="CODE", help="Code of the source language.", show_default="detected")
]
TargetLanguageOption = Annotated[
    str | None, typer.Option(metavar="CODE", help="Code of the target language.", show_default="detected")
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE,TARGET",
        help="In files of pairs: columns from 0, keys of JSON, or languages of TMX.",
        show_default="detected",
    ),
]
EncodingOption = Annotated[str | None, typer.Option(help="Encoding of files that are not UTF-8, such as cp1252.")]


def read_texts(
    files: list[Path], source: str | None, target: str | None, columns: str | None, encoding: str | None
) -> "tuple[list[CheckedText], tuple[SideLanguage, SideLanguage]]":
    """The checked texts of files, and their languages; shows progress on a terminal.

    Raises:
        ConfigurationError: if an option makes no sense, or it is not clear which files belong together.
        DataError: if a file cannot be read.
    """
    from jointnmt.data.quality.check import check_texts
    from jointnmt.data.quality.languages import settle_languages
    from jointnmt.data.quality.texts import gather_texts

    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    if wanted is not None and (len(wanted) != 2 or not all(wanted)):
        raise ConfigurationError(f"--columns {columns}: name two, such as 0,1 or source,target.")
    _check_encoding(encoding)
    check_language("--source", source)
    check_language("--target", target)
    if source is not None and source == target:
        raise ConfigurationError(f"--source and --target are both {source}. Give the two languages of the text.")
    texts, languages = settle_languages(gather_texts(files, wanted, encoding, source, target), source, target)
    shown = stderr().is_terminal and logger.isEnabledFor(logging.INFO)
    with stderr().status("reading") if shown else nullcontext() as status:

        def progress(what: str, done: int) -> None:
            if status is not None:
                status.update(f"{what}: {done:,} pairs")

        return check_texts(texts, languages, progress=progress), languages


def check_different(codes: tuple[str, str]) -> None:
    """Refuse one language for both sides, whose files would have the same names.

    Raises:
        ConfigurationError: if the languages are the same.
    """
    if codes[0] == codes[1]:
        raise ConfigurationError(
            f"Source and target both seem to be {codes[0]}; in part of the lines the sides may be exchanged, which is "
            "found once the languages are given. Give them: --source, --target."
        )


def _check_encoding(encoding: str | None) -> None:
    try:
        "a".encode(encoding or "utf-8").decode(encoding or "utf-8")
    except (LookupError, UnicodeError):
        raise ConfigurationError(f"--encoding {encoding}: there is no such encoding. Try cp1252 or latin-1.") from None


def check_language(option: str, code: str | None) -> None:
    """Refuse an unknown language code.

    Raises:
        ConfigurationError: naming the option and the code that was probably meant.
    """
    from jointnmt.text.languages import check_code

    if code is not None and (wrong := check_code(code)):
        raise ConfigurationError(f"{option}: {wrong}")
