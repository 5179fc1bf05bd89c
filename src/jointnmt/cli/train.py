"""`jointnmt train`: train a model from a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.options import RecipeArgument, RecipeSettings


def train(
    recipe: RecipeArgument,
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Directory of the run, created or resumed.")],
    settings: RecipeSettings = None,
    mirror: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Copy of RUN on a disk or in an object store (fsspec), fetched if newer."),
    ] = None,
) -> None:
    """Train a model from a recipe, or resume its training.

    The same command resumes from the last saved state, and ends with the same weights as without interruption. Ctrl-C
    saves after the current update. Several processes: `torchrun --nproc-per-node 2 -m jointnmt train ...`.
    """
    from jointnmt.cli.console import stderr
    from jointnmt.experiment import Experiment
    from jointnmt.training.progress import choose_display
    from jointnmt.training.run import train as run_training

    run_training(Experiment.load(recipe, settings or ()), out, choose_display(stderr()), mirror)
