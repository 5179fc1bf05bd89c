"""`jointnmt info`: the parameters of a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from jointnmt.analysis.parameters import Parameters, count_parameters
from jointnmt.cli.console import numeric, stdout
from jointnmt.cli.options import RecipeSettings
from jointnmt.config import override
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.loading import read_experiment
from jointnmt.shipped import is_shipped, locate_run
from jointnmt.text.segmentation import Segmentation

MARKDOWN_HEAD = """\
| recipe | source pieces | target pieces | embeddings | rest | total |
|---|---|---|---|---|---|"""


def info(
    recipes: Annotated[
        list[Path], typer.Argument(metavar="RECIPE|RUN", help="Recipes (YAML), or directories of trained models.")
    ],
    source_vocabulary: Annotated[
        int | None,
        typer.Option(min=1, help="Source vocabulary size.", show_default="the run's, or the recipe's"),
    ] = None,
    target_vocabulary: Annotated[
        int | None, typer.Option(min=1, help="Target vocabulary size.", show_default="the run's, or the recipe's")
    ] = None,
    settings: RecipeSettings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each recipe.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print one Markdown table, a row for each recipe.")
    ] = False,
) -> None:
    """Count the parameters of recipes or runs, without data or training.

    They are listed as embeddings (of source and target, and the projection to the vocabulary) and the rest.
    """
    if as_json and markdown:
        raise ConfigurationError("--json and --markdown exclude each other: give one of them.")
    recipes = [locate_run(path) if is_shipped(path) else path for path in recipes]
    counted = [(path, *_count(path, settings or (), source_vocabulary, target_vocabulary)) for path in recipes]
    if markdown:
        typer.echo(MARKDOWN_HEAD)
    for path, experiment, sizes, parameters in counted:
        if as_json:
            head: dict[str, Any] = {"name": experiment.name, "family": experiment.model.family}
            head |= {"source_vocabulary": sizes[0], "target_vocabulary": sizes[1]}
            typer.echo(json.dumps(head | parameters.plain()))
        elif markdown:
            typer.echo(_markdown_row(path, sizes, parameters))
        else:
            which = experiment.name if len(recipes) == 1 else f"{experiment.name} ({path})"
            stdout().print(_table(f"{which}: {experiment.model.family}", sizes, parameters))


def _count(
    recipe: Path, settings: Sequence[str], source_vocabulary: int | None, target_vocabulary: int | None
) -> tuple[Experiment, tuple[int, int], Parameters]:
    """The experiment of a recipe or a run, its vocabulary sizes and its parameters."""
    if recipe.is_dir():
        trained = read_experiment(recipe)
        experiment = Experiment.parse(override(trained.plain(), settings), origin=str(recipe))
    else:
        experiment = Experiment.load(recipe, settings)
    sizes = _vocabularies(recipe, experiment, source_vocabulary, target_vocabulary)
    return experiment, sizes, count_parameters(experiment.model, *sizes)


def _vocabularies(recipe: Path, experiment: Experiment, source: int | None, target: int | None) -> tuple[int, int]:
    """Vocabulary sizes as given, else of the run, else as the recipe sets them (training may find fewer pieces)."""
    config = experiment.segmentation
    if source is not None and target is None and config.shared:
        target = source
    if target is not None and source is None and config.shared:
        source = target
    if source is not None and target is not None:
        return source, target
    if recipe.is_dir():
        segmentation = Segmentation.load(RunDirectory(recipe).segmentation)
        defaults = segmentation.source.vocabulary_size, segmentation.target.vocabulary_size
    elif config.num_merges is not None or not isinstance(config.joint, bool) or config.codes is not None:
        raise ConfigurationError(
            f"{recipe}: the vocabulary sizes are not known before the segmentation is made. Give "
            "--source-vocabulary and --target-vocabulary, or a RUN."
        )
    else:
        configured_target = config.vocabulary_size if config.joint else config.target_vocabulary_size
        defaults = config.vocabulary_size, configured_target or config.vocabulary_size
    return source or defaults[0], target or defaults[1]


def _markdown_row(recipe: Path, sizes: tuple[int, int], parameters: Parameters) -> str:
    """A row of the table that `MARKDOWN_HEAD` begins."""
    sums = parameters.plain()
    numbers = [*sizes, sums["embeddings"], sums["rest"], sums["total"]]
    return f"| `{recipe}` | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def _table(title: str, sizes: tuple[int, int], parameters: Parameters) -> Table:
    caption = f"vocabularies: {sizes[0]:,} source, {sizes[1]:,} target pieces"
    table = Table("part", *numeric("parameters", "share"), title=title, caption=caption)
    for group in (parameters.embeddings, parameters.rest):
        for name, count in group.items():
            share = f"{count / parameters.total:.1%}" if count else "shared"
            table.add_row(name.replace("_", " "), f"{count:,}" if count else "", share)
        table.add_section()
    sums = parameters.plain()
    for name in ("embeddings", "rest", "total"):
        table.add_row(name, f"{sums[name]:,}", f"{sums[name] / parameters.total:.1%}", style="bold")
    return table
