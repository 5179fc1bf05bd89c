"""`jointnmt average`: averaged weights of several checkpoints."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.lines import check_output
from jointnmt.cli.options import RunArgument
from jointnmt.errors import ConfigurationError

logger = logging.getLogger(__name__)


def average(
    run: RunArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Weights to write, such as RUN/model.safetensors.")
    ],
    best: Annotated[
        int | None, typer.Option("--best", min=1, help="Average this many of the best checkpoints.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help="Average this many of the latest checkpoints.")
    ] = None,
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option("--checkpoint", help="Average the checkpoints given by this option. Repeatable."),
    ] = None,
) -> None:
    """Average the weights of checkpoints of a run: the best, the latest of those kept, or the given ones.

    Averages written to RUN/model.safetensors are overwritten by `jointnmt train` with the same RUN, which averages as
    its recipe says.
    """
    from jointnmt.runs.averaging import average_into, choose_checkpoints
    from jointnmt.runs.directory import RunDirectory

    if sum(choice is not None for choice in (best, last, checkpoints or None)) != 1:
        raise ConfigurationError("Give one of --best, --last and --checkpoint.")
    check_output(out, checkpoints or (), is_model=True)
    if out.is_file() and out.suffix != ".safetensors":
        raise ConfigurationError(f"--out {out}: exists, and is not a file of weights. Name another one, *.safetensors.")
    paths = choose_checkpoints(run, best, last, checkpoints)
    average_into(out, paths)
    if out.resolve() == RunDirectory(run).model.resolve():
        logger.warning("%s: `jointnmt train` with this RUN overwrites it, as training.average_best says", out)
    logger.info("%s: the average of %s", out, ", ".join(str(path) for path in paths))
