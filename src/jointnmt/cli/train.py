"""`jointnmt train`: train a model from a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.options import RecipeSettings


def train(
    recipe: Annotated[Path, typer.Argument(help="The experiment's configuration (YAML), or package:NAME.")],
    out: Annotated[Path, typer.Option("--out", help="The RUN directory, created or resumed.")],
    settings: RecipeSettings = None,
) -> None:
    """Train a model from a recipe, or resume its training.

    The same command resumes from the last saved state, and ends with the same weights as without interruption. Ctrl-C
    saves after the current update. Several processes: `torchrun --nproc-per-node 2 -m jointnmt train ...`.
    """
    from jointnmt.cli.console import stderr
    from jointnmt.experiment import Experiment
    from jointnmt.train import train as run_training
    from jointnmt.training.progress import choose_display

    run_training(Experiment.load(recipe, settings or ()), out, choose_display(stderr()))
