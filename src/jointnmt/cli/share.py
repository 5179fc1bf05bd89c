"""`jointnmt share`: a run as a folder to share."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from jointnmt.cli.options import DeviceOption, RunArgument
from jointnmt.cli.progress import ProgressBars
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.testset.eval_set import EvalSet

logger = logging.getLogger(__name__)


def share(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder to write.")],
    weights: Annotated[
        Literal["float32", "float16", "bfloat16"],
        typer.Option(help="Precision of the stored weights: float16 halves them. All are loaded as float32."),
    ] = "float16",
    test: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE,REFERENCE",
            help="A test set, two files line by line: the card states the scores of the stored weights. Repeatable.",
        ),
    ] = None,
    licence: Annotated[str | None, typer.Option(help="The model's licence, for the card.")] = None,
    data_licence: Annotated[
        str | None, typer.Option(help="Sources and licences of the training text, for the card.")
    ] = None,
    limits: Annotated[
        str | None, typer.Option(help="Limits of the model, for the card, besides those that follow from its settings.")
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Save a run as a small folder to share: weights, segmentation, configuration, and a card (README.md).

    Every command that needs neither checkpoints nor training text takes the folder as a RUN. The card states data,
    seed, settings, scores and licences; those that are not given are marked as not stated.
    """
    from jointnmt.testset.sharing import ShareOptions, share_run

    stated = {"licence": licence, "data_licence": data_licence, "limits": limits}
    card = {name: text for name, text in stated.items() if text is not None}
    options = ShareOptions(weights, card, dict(map(_test_set, test or ())), device)
    if len(options.tests) < len(test or ()):
        raise ConfigurationError("--test: two test sets have the same name. Give each its own.")
    with ProgressBars() as progress:
        share_run(run, to, options, progress.update)
    size = sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
    logger.info("%s: %.2f MB, weights in %s", to, size / 1e6, weights)


def _test_set(given: str) -> tuple[str, EvalSet]:
    name, equals, files = given.partition("=")
    source, comma, reference = files.partition(",")
    if not (name and equals and source and comma and reference):
        raise ConfigurationError(f"--test {given}: must be NAME=SOURCE,REFERENCE, as in test=test.de,test.en.")
    return name, EvalSet(list(text_lines(Path(source))), list(text_lines(Path(reference))), source, reference)
