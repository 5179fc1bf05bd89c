"""`jointnmt scale`: a larger recipe from three trainings."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from jointnmt.cli.console import numeric, stderr, stdout
from jointnmt.cli.options import RecipeArgument, RecipeSettings
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.runs.directory import RunDirectory
from jointnmt.scaling.report import scaling_report, write_report
from jointnmt.scaling.runs import RUNS, three_runs, trained_outcomes
from jointnmt.scaling.sizes import depths
from jointnmt.scaling.step import ScalingError
from jointnmt.scaling.step import scale as scale_experiment
from jointnmt.training.processes import is_first
from jointnmt.training.progress import choose_display

logger = logging.getLogger(__name__)


def scale(
    recipe: RecipeArgument,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where to write the three runs, scaled.yaml and report.json."),
    ],
    ratio: Annotated[
        float, typer.Option("--ratio", help="Parameters of the scaled model, as a multiple of the base.")
    ] = 2.0,
    epsilon: Annotated[
        int, typer.Option("--epsilon", min=1, help="Layers, and width in units of E, added to measure the gradient.")
    ] = 1,
    updates: Annotated[
        int | None, typer.Option("--updates", min=1, help="Updates of each run.", show_default="the recipe's")
    ] = None,
    only: Annotated[
        Literal["base", "depth", "width"] | None,
        typer.Option("--only", help="Only train this run, so that all three can run in parallel."),
    ] = None,
    settings: RecipeSettings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Scale a recipe in depth and width by the gradient of its validation cross-entropy (Li et al. 2020, Eqs. 7-11).

    Trains it unchanged, deeper, and wider, in FOLDER/base, FOLDER/depth and FOLDER/width. Finished runs are not
    trained again; interrupted ones resume. If the gradient leads to no larger model, the command says why and exits
    with code 2.
    """
    if not (math.isfinite(ratio) and ratio > 1):
        raise ConfigurationError(f"--ratio {ratio:g}: must be a number above 1.")
    if RunDirectory(out).experiment.exists():
        raise ConfigurationError(f"{out}: is itself a run. Choose another directory for --out.")
    experiment = Experiment.load(recipe, settings or ())
    wanted = three_runs(experiment, epsilon, updates)
    names = RUNS if only is None else (only,)
    outcomes = trained_outcomes({name: wanted[name] for name in names}, out, _train)
    if not is_first():  # of several processes that train together
        return
    if only is not None:
        logger.info("once %s are finished in %s, run the same command without --only", ", ".join(RUNS), out)
        return
    scaling = scale_experiment(experiment, outcomes, ratio, epsilon)
    report = scaling_report(experiment, scaling, outcomes, ratio, epsilon)
    write_report(experiment, scaling, report, out)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(experiment, report)
    if scaling.refused is not None:
        raise ScalingError(scaling.refused)
    logger.info("the scaled recipe is %s; train it with: jointnmt train %s --out RUN", *[out / "scaled.yaml"] * 2)


def _train(experiment: Experiment, run: Path) -> None:
    from jointnmt.training.run import train as run_training

    run_training(experiment, run, choose_display(stderr()))


def _print(experiment: Experiment, report: dict[str, Any]) -> None:
    stdout().print(_runs_table(experiment, report))
    if report["scaled"] is None:
        return
    stdout().print(_scaled_table(report))
    spent = report["cost"]
    stdout().print(
        f"Cost: {spent['trainings']} trainings ({spent['relative']:.1f} times the base, by parameters; "
        f"{spent['seconds']:,.0f} s here). A grid search over whole layers and widths of E between the two models: "
        f"{spent['grid_trainings']} trainings ({spent['grid_relative']:.1f} times the base)."
    )


def _layers(layers: Mapping[str, int]) -> str:
    return " + ".join(str(depth) for depth in layers.values())


def _runs_table(experiment: Experiment, report: dict[str, Any]) -> Table:
    gradient = report["gradient"]
    caption = (
        f"Layers: {' + '.join(depths(experiment.model))}. Cross-entropy: the lowest of the run's validations, in "
        "nats a token. Better by: fall in cross-entropy for each layer or width of E added (Eq. 10)."
    )
    headings = numeric("layers", "F", "w = F/E", "parameters", "cross-entropy", "after update", "better by")
    table = Table("run", *headings, title=f"{report['name']}: {report['family']}", caption=caption)
    for name, run in report["runs"].items():
        sizes = [_layers(run["layers"]), str(run["ffn_dim"]), f"{run['width']:.4g}", f"{run['parameters']['total']:,}"]
        better = f"{gradient[name]:+.5f}" if name in gradient else ""
        table.add_row(name, *sizes, f"{run['nll']:.5f}", str(run["step"]), better)
    return table


def _scaled_table(report: dict[str, Any]) -> Table:
    base, scaled, step, ratios = report["runs"]["base"], report["scaled"], report["step"], report["parameter_ratio"]
    title = f"scaled to {report['ratio']:g} times the parameters: alpha {step['alpha']:.2f} (Eq. 11)"
    table = Table("", *numeric("base", "step", "scaled", "ratio"), title=title)
    table.add_row("layers", _layers(base["layers"]), f"{step['layers']:+.2f}", _layers(scaled["layers"]), "")
    table.add_row("w = F/E", f"{base['width']:.4g}", f"{step['width']:+.2f}", f"{scaled['width']:.4g}", "")
    table.add_row("F", str(base["ffn_dim"]), "", str(scaled["ffn_dim"]), "")
    table.add_section()
    table.add_row("parameters, predicted (Eq. 8)", "", "", "", f"{ratios['predicted']:.3f}")
    for key, title in (("rest", "parameters without embeddings"), ("total", "parameters")):
        counts = [f"{one['parameters'][key]:,}" for one in (base, scaled)]
        table.add_row(title, counts[0], "", counts[1], f"{ratios[key]:.3f}")
    return table
