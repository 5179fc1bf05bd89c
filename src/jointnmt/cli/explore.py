"""`jointnmt explore`: what models compute on given sentences, as one page."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jointnmt.cli.lines import check_output
from jointnmt.cli.options import COMPRESSED, NAMED_RUNS, DeviceOption, PrecisionChoiceOption
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.files import write_text
from jointnmt.serving.names import named_paths

if TYPE_CHECKING:
    from jointnmt.serving.exploration import Texts

logger = logging.getLogger(__name__)

PAGE, NUMBERS = ".html", ".json"


def explore(
    runs: Annotated[list[str], NAMED_RUNS],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help=f"File to write: a page ({PAGE}), or its numbers ({NUMBERS}).")
    ],
    text: Annotated[list[str] | None, typer.Option(help="A sentence to look into. Repeatable.")] = None,
    translation: Annotated[
        list[str] | None, typer.Option(help="A translation to look into besides the models', one for each --text.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help=f"Sentences to look into, one a line ({COMPRESSED}).")
    ] = None,
    max_tokens: Annotated[
        int,
        typer.Option(
            min=2,
            help="Most tokens of a sentence, end mark included; a longer translation is shown up to this length.",
        ),
    ] = 80,
    device: DeviceOption = "auto",
    precision: PrecisionChoiceOption = "auto",
) -> None:
    """Explore what models compute on sentences: write one page that opens without a server or network.

    It shows the models' translations and alignments, the attention of all layers, the joint representation cell by
    cell, the search as a tree, and each model's scores of the others' translations. All models must have the same
    language pair.
    """
    from jointnmt.serving.engine import Engine
    from jointnmt.serving.exploration import document

    if out.suffix not in (PAGE, NUMBERS):
        raise ConfigurationError(f"--out {out}: the name of the file ends in {PAGE} or {NUMBERS}.")
    texts = _texts(text or [], translation or [], source)
    out.parent.mkdir(parents=True, exist_ok=True)
    check_output(out)
    engines = {name: Engine.load(path, device, precision) for name, path in named_paths(runs).items()}
    found = document(engines, texts, max_tokens)
    if out.suffix == PAGE:
        from jointnmt.serving.page import write_page

        write_page(found, out)
    else:
        write_text(out, json.dumps(found, ensure_ascii=False) + "\n")
    logger.info("sentences: %d, models: %d, all in %s", len(texts), len(engines), out)


def _texts(texts: Sequence[str], targets: Sequence[str], source: Path | None) -> list[Texts]:
    from jointnmt.serving.exploration import Texts

    if bool(texts) == (source is not None):
        raise ConfigurationError("Give the sentences either by --text or by --input.")
    if source is not None:
        if targets:
            raise ConfigurationError("--translation goes with --text.")
        found = [Texts(line, origin=f"{source}:{number}") for number, line in enumerate(text_lines(source), start=1)]
        if not found:
            raise ConfigurationError(f"--input {source}: the file is empty.")
        return found
    if targets and len(targets) != len(texts):
        raise ConfigurationError(f"There are {len(texts)} --text, but {len(targets)} --translation: give one for each.")
    return [Texts(*each) for each in zip(texts, targets, strict=True)] if targets else list(map(Texts, texts))
