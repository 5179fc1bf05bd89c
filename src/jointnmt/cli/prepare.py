"""`jointnmt prepare`: the preprocessing of a training, on all cores or on a cluster."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.options import RecipeArgument, RecipeSettings


def prepare(
    recipe: RecipeArgument,
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Directory of the run, for the segmentation.")],
    settings: RecipeSettings = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="A Ray cluster that segments: auto (the one of this machine) or HOST:PORT. All its machines must be "
            "able to read the text and to read and write the cache (data.cache).",
            show_default="processes of this machine",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that segment.", show_default="one for each core")
    ] = None,
) -> None:
    """Learn the segmentation of a recipe, and filter and segment its text, which `train` with the same RUN then uses.

    After an interruption, the same command continues, and so does `train`. The result does not depend on the workers.
    """
    from jointnmt.cli.console import stderr
    from jointnmt.data.pool import Pool
    from jointnmt.experiment import Experiment
    from jointnmt.extras import extra
    from jointnmt.training.progress import choose_display
    from jointnmt.training.run import prepare_data

    if workers is not None:
        settings = [*(settings or ()), f"data.processes={workers}"]
    experiment = Experiment.load(recipe, settings or ())
    with ExitStack() as held:
        pool: Pool | None = None
        if address is not None:
            with extra("cluster"):
                from jointnmt.cluster.preparation import RayPool
                from jointnmt.cluster.session import connected
            held.enter_context(connected(address))
            pool = RayPool(workers)
        prepare_data(experiment, out, choose_display(stderr()), pool)
