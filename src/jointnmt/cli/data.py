"""`jointnmt data`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TimeRemainingColumn
from rich.table import Column, Table

from jointnmt.cli.console import stderr, stdout
from jointnmt.cli.progress import REST
from jointnmt.data import catalogue
from jointnmt.errors import ConfigurationError

logger = logging.getLogger(__name__)


def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A corpus of the catalogue.", show_default="print the catalogue"),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="The folder to write its files to, as plain text.")
    ] = None,
    local: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="A folder with a copy of its files, perhaps compressed.",
            show_default="download it, or unpack it",
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Print the catalogue.")] = False,
) -> None:
    """Prepare a corpus of the catalogue: unpack it if it comes with this package, otherwise download it.

    Its files are checked against the catalogue's checksums. Files that already exist are kept.

    To check your own text, use another command: `jointnmt data check FILES...` finds all problems in it.
    """
    stray = ["--out"] * (to is not None) + ["--from"] * (local is not None)
    if listing and (others := [*([name] if name else ()), *stray]):
        raise ConfigurationError(f"--list prints the catalogue: leave out {', '.join(others)}, or --list.")
    if name is None and stray:
        raise ConfigurationError(f"{', '.join(stray)}: name the corpus, as NAME: {_names()}.")
    if name is None or listing:
        stdout().print(_table())
    elif name not in catalogue.CATALOGUE:
        raise ConfigurationError(f"{name}: there is no such corpus in the catalogue. It has: {_names()}.")
    elif to is None:
        raise ConfigurationError(f"--out is missing: name the folder to put {name} in.")
    else:
        _get(catalogue.CATALOGUE[name], to, local)


def _names() -> str:
    return ", ".join(catalogue.CATALOGUE)


def _get(corpus: catalogue.Corpus, to: Path, local: Path | None) -> None:
    with _progress() as progress:
        written = catalogue.prepare(corpus, to, local, progress)
    kept = len(corpus.files) - len(written)
    logger.info("%s: %s is complete: %d files written, %d kept", to, corpus.name, len(written), kept)
    logger.info("terms of %s: %s; cite: %s", corpus.name, corpus.licence, corpus.citation)


@contextmanager
def _progress() -> Iterator[catalogue.Progress]:
    """A progress bar for each file on standard error, if that is a terminal and information is logged."""
    columns = TaskProgressColumn(), TimeRemainingColumn(), DownloadColumn(), BarColumn(bar_width=10), REST
    shown = stderr().is_terminal and logger.isEnabledFor(logging.INFO)
    with Progress(*columns, console=stderr(), disable=not shown, transient=True, expand=True) as bars:
        tasks = {}

        def advance(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=total)

        yield advance


def _table() -> Table:
    headings = [Column(heading, no_wrap=True) for heading in ("name", "languages", "sentence pairs")]
    headings += [Column("what it is", max_width=28), Column("source, terms, citation", overflow="fold")]
    table = Table(*headings, title="jointnmt data NAME --out DIR", show_lines=True)
    for corpus in catalogue.CATALOGUE.values():
        pairs = "\n".join(f"{part} {count:,}" for part, count in corpus.pairs.items())
        what = corpus.description + ("; comes with this package" if corpus.bundled else "")
        terms = f"{corpus.source}\n{corpus.licence}\n{corpus.citation}"
        table.add_row(corpus.name, ", ".join(corpus.languages), pairs, what, terms)
    return table
