"""Arguments and options that several commands take: one name, and one explanation, for one thing.

Values other than text are shown as in `cli/command.py`: FILE, FOLDER, NUMBER, or the choices. A default is shown as
`[default: ...]`; for `None`, `show_default` says what it means.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

COMPUTATION = "Computation"
"""Help panel of `--device` and similar options."""

COMPRESSED = "also .gz, .xz, .bz2"

BATCHES = (
    "Otherwise results in float16, on a GPU, or without the CPU kernels depend slightly on the rest of the batch: "
    "scores in their last digits, and rarely a translation."
)


def panel(name: str, text: str, *names: str, **settings: Any) -> Any:
    """An option that the help shows in a panel of its own."""
    return typer.Option(*names, help=text, rich_help_panel=name, **settings)


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a trained model.")]
EnsembleArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Directory of a trained model; A+B+C: an ensemble of several.")
]
RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Directories of trained models, the one to compare with first.")
]
EACH_NAMED = "Directories of trained models, each optionally with a name"
NAMED_RUNS = typer.Argument(metavar="[NAME=]RUN", help=f"{EACH_NAMED}.")
NAMED_ENSEMBLES = typer.Argument(metavar="[NAME=]RUN", help=f"{EACH_NAMED}; A+B+C: an ensemble of several.")
RecipeArgument = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="Configuration of an experiment (YAML), or package:NAME.")
]
SourceOption = Annotated[
    Path, typer.Option(metavar="FILE", help=f"Source sentences, one a line ({COMPRESSED}).", show_default=False)
]
TargetOption = Annotated[
    Path, typer.Option(metavar="FILE", help=f"Given translations of the source, line by line ({COMPRESSED}).")
]
ReferenceOption = Annotated[
    Path, typer.Option(metavar="FILE", help=f"Reference translations of the source, line by line ({COMPRESSED}).")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="File to write.", show_default="standard output"),
]
DeviceOption = Annotated[str, panel(COMPUTATION, "auto (a GPU if there is one), cpu or cuda.", metavar="DEVICE")]
PrecisionOption = Annotated[
    Literal["float32", "bfloat16", "float16", "int8"],
    panel(
        COMPUTATION,
        "Precision of the model's computations: float32, bfloat16, float16 or, on a CPU only, int8.",
        metavar="PRECISION",
    ),
]
PrecisionChoiceOption = Annotated[
    Literal["auto", "float32", "bfloat16", "float16", "int8"],
    panel(
        COMPUTATION,
        "Precision of the model's computations: auto (bfloat16 if it is a tenth faster than float32, measured once), "
        "float32, bfloat16, float16 or, on a CPU only, int8.",
        metavar="PRECISION",
    ),
]
BatchCellsOption = Annotated[
    int | None,
    panel(
        COMPUTATION,
        "Largest batch, in cells: hypotheses * source * target tokens. 1: each sentence by itself. " + BATCHES,
        min=1,
        show_default="by the model and the device",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
RecipeSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Replace a value of the recipe. Repeatable."),
]
