"""`jointnmt info`: the parameters of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from jointnmt.analysis.parameters import Parameters, count_parameters
from jointnmt.cli.console import stdout
from jointnmt.experiment import Experiment
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.loading import read_experiment
from jointnmt.text.segmentation import Segmentation


def info(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE|RUN", help="A recipe (YAML), or the directory of a run.")],
    source_vocabulary: Annotated[
        int | None,
        typer.Option(min=1, help="Source vocabulary size. Default: the run's, or the recipe's setting."),
    ] = None,
    target_vocabulary: Annotated[int | None, typer.Option(min=1, help="Target vocabulary size, likewise.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Change the configuration. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count the parameters of a recipe or a run, without data or training.

    They are split into embeddings (of source and target, and the projection to the vocabulary) and the rest.
    """
    if recipe.is_dir():
        read_experiment(recipe)  # a damaged run is a ModelError
    experiment = Experiment.load(RunDirectory(recipe).experiment if recipe.is_dir() else recipe, settings or ())
    sizes = _vocabularies(recipe, experiment, source_vocabulary, target_vocabulary)
    parameters = count_parameters(experiment.model, *sizes)
    if as_json:
        head: dict[str, Any] = {"name": experiment.name, "family": experiment.model.family}
        head |= {"source_vocabulary": sizes[0], "target_vocabulary": sizes[1]}
        typer.echo(json.dumps(head | parameters.plain()))
        return
    stdout().print(_table(f"{experiment.name}: {experiment.model.family}", sizes, parameters))


def _vocabularies(recipe: Path, experiment: Experiment, source: int | None, target: int | None) -> tuple[int, int]:
    """Sizes as given, else of the run, else as the recipe sets them (training may find fewer pieces)."""
    config = experiment.segmentation
    if source is not None and target is None and config.joint:
        target = source
    if target is not None and source is None and config.joint:
        source = target
    if source is not None and target is not None:
        return source, target
    if recipe.is_dir():
        segmentation = Segmentation.load(RunDirectory(recipe).segmentation)
        defaults = segmentation.source.vocabulary_size, segmentation.target.vocabulary_size
    else:
        configured_target = config.vocabulary_size if config.joint else config.target_vocabulary_size
        defaults = config.vocabulary_size, configured_target or config.vocabulary_size
    return source or defaults[0], target or defaults[1]


def _table(title: str, sizes: tuple[int, int], parameters: Parameters) -> Table:
    table = Table(title=title, caption=f"vocabularies: {sizes[0]:,} source, {sizes[1]:,} target pieces")
    table.add_column("part")
    table.add_column("parameters", justify="right")
    table.add_column("share", justify="right")
    for group in (parameters.embeddings, parameters.rest):
        for name, count in group.items():
            share = f"{count / parameters.total:.1%}" if count else "shared"
            table.add_row(name.replace("_", " "), f"{count:,}" if count else "", share)
        table.add_section()
    sums = parameters.plain()
    for name in ("embeddings", "rest", "total"):
        table.add_row(f"[bold]{name}", f"[bold]{sums[name]:,}", f"{sums[name] / parameters.total:.1%}")
    return table
