"""`jointnmt data`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from jointnmt.cli.console import stderr, stdout
from jointnmt.data import catalogue
from jointnmt.errors import ConfigurationError

SYNTHETIC = "synthetic"
DEFAULTS = {"--seed": 1, "--train": 50_000, "--validation": 500, "--test": 500}

logger = logging.getLogger(__name__)


def data(
    name: Annotated[str | None, typer.Argument(help="A corpus of the catalogue. None: print the catalogue.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The folder to put its files in, as plain text.")] = None,
    local: Annotated[
        Path | None,
        typer.Option("--from", help="A folder that has a copy of it: plain, .gz or .xz. Default: download it."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of synthetic alone: its seed. Default: 1.")] = None,
    train: Annotated[int | None, typer.Option(help="Likewise: sentence pairs for training. Default: 50000.")] = None,
    validation: Annotated[int | None, typer.Option(help="Likewise, for validation. Default: 500.")] = None,
    test: Annotated[int | None, typer.Option(help="Likewise, for testing. Default: 500.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Print the catalogue.")] = False,
) -> None:
    """Prepare a corpus of the catalogue, or generate the synthetic one.

    A corpus's files are checked against the catalogue's checksums. Those that are there already are kept.
    """
    options = {"--seed": seed, "--train": train, "--validation": validation, "--test": test}
    given = {option: value for option, value in options.items() if value is not None}
    if name is None or listing:
        stray = ["--to"] * (to is not None) + ["--from"] * (local is not None) + list(given)
        if name is None and stray:
            raise ConfigurationError(f"{', '.join(stray)}: say of which corpus, as NAME: {_names()}.")
        stdout().print(_table())
    elif name != SYNTHETIC and name not in catalogue.CATALOGUE:
        raise ConfigurationError(f"{name}: there is no such corpus in the catalogue. It has: {_names()}.")
    elif to is None:
        raise ConfigurationError(f"--to is missing: name the folder to put {name} in.")
    elif name == SYNTHETIC:
        _generate(to, local, DEFAULTS | given)
    elif given:
        raise ConfigurationError(f"{', '.join(given)}: only for {SYNTHETIC}; {name} is what it is. Leave it out.")
    else:
        _get(catalogue.CATALOGUE[name], to, local)


def _names() -> str:
    return ", ".join([*catalogue.CATALOGUE, SYNTHETIC])


def _generate(to: Path, local: Path | None, options: dict[str, int]) -> None:
    from jointnmt.data.synthetic import write_corpus

    if local is not None:
        raise ConfigurationError(
            f"--from: not for {SYNTHETIC}, which is generated, but for {', '.join(catalogue.CATALOGUE)}. Leave it out."
        )
    if not any(options[f"--{part}"] for part in ("train", "validation", "test")):
        raise ConfigurationError("--train, --validation and --test are all 0: there is nothing to write.")
    logger.info("%s: generating %s", to, SYNTHETIC)
    write_corpus(to, options["--seed"], options["--train"], options["--validation"], options["--test"])
    sizes = ", ".join(f"{options[f'--{part}']:,} for {part}" for part in ("train", "validation", "test"))
    logger.info("%s: %s is written, with seed %d and sentence pairs: %s", to, SYNTHETIC, options["--seed"], sizes)


def _get(corpus: catalogue.Corpus, to: Path, local: Path | None) -> None:
    with _progress() as progress:
        written = catalogue.prepare(corpus, to, local, progress)
    kept = len(corpus.files) - len(written)
    logger.info("%s: %s is there: %d files written, %d kept", to, corpus.name, len(written), kept)
    logger.info("terms of %s: %s; cite: %s", corpus.name, corpus.licence, corpus.citation)


@contextmanager
def _progress() -> Iterator[catalogue.Progress]:
    """A bar a file on standard error, if that is a terminal and information is wanted."""
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    shown = stderr().is_terminal and logger.isEnabledFor(logging.INFO)
    with Progress(*columns, console=stderr(), disable=not shown, transient=True) as bars:
        tasks = {}

        def advance(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=total)

        yield advance


def _table() -> Table:
    table = Table(title="jointnmt data NAME --to DIR", show_lines=True)
    for heading in ("name", "languages", "sentence pairs"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it is", max_width=28)
    table.add_column("source, terms, citation", overflow="fold")
    for corpus in catalogue.CATALOGUE.values():
        pairs = "\n".join(f"{part} {count:,}" for part, count in corpus.pairs.items())
        what = corpus.description if corpus.not_downloadable is None else f"{corpus.description}; needs --from"
        terms = f"{corpus.source}\n{corpus.licence}\n{corpus.citation}"
        table.add_row(corpus.name, ", ".join(corpus.languages), pairs, what, terms)
    pairs = "\n".join(f"{option.removeprefix('--')} {DEFAULTS[option]:,}" for option in list(DEFAULTS)[1:])
    what = "synthetic text from a grammar of this project, for trying things out; any number of pairs, by seed"
    table.add_row(SYNTHETIC, "de, en", pairs, what, "generated here\nlicence of this project")
    return table
