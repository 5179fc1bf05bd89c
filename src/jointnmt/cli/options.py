"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a trained model.")]
EnsembleArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="The directory of a trained model; A+B+C: of several, an ensemble.")
]
SourceOption = Annotated[Path, typer.Option(help="Source sentences, one a line (also .gz, .xz).")]
TargetOption = Annotated[Path, typer.Option(help="Their translations, one a line (also .gz, .xz).")]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
PrecisionOption = Annotated[
    Literal["float32", "bfloat16", "float16"], typer.Option(help="Of the model's computations.")
]
BatchCellsOption = Annotated[int | None, typer.Option(min=1, help="Most cells at once: sentences * source * target.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
RecipeSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Replace a value of the recipe. Repeatable."),
]
