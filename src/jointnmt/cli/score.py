"""`jointnmt score`: log-probabilities of given translations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from jointnmt.cli.lines import open_output
from jointnmt.data.lines import text_lines
from jointnmt.runs.members import members_of
from jointnmt.text.languages import check_sides
from jointnmt.translator import ScoredTranslation, Translator


def score(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The directory of a trained model; A+B+C: of several, an ensemble.")
    ],
    source: Annotated[Path, typer.Option(help="Source sentences, one a line (also .gz, .xz).")],
    target: Annotated[Path, typer.Option(help="Their translations, one a line (also .gz, .xz).")],
    pieces: Annotated[
        bool,
        typer.Option(
            "--pieces", help="The target is pieces separated by spaces (tokens of translate --json), not text."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object a line, with tokens.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Of the model's computations.")
    ] = "float32",
    batch_cells: Annotated[
        int | None, typer.Option(min=1, help="Most cells at once: sentences * source * target.")
    ] = None,
) -> None:
    """Give the log-probability (natural logarithm) of each translation, and of each of its tokens.

    Each line of output has the total, a tab, and the log-probabilities of the tokens, end mark last, separated by
    spaces.
    """
    translator = Translator.load(members_of(run), device, precision, batch_cells)
    check_sides(str(source), str(target), translator.segmentation.languages)
    scores = translator.score_stream(text_lines(source), text_lines(target), str(source), pieces)
    with open_output(output) as write:
        for number, scored in enumerate(scores, start=1):
            write(_rendered(scored, number, as_json))


def _rendered(scored: ScoredTranslation, number: int, as_json: bool) -> str:
    if as_json:
        return json.dumps({"line": number, **scored.plain()}, ensure_ascii=False)
    tokens = " ".join(f"{value:.6f}" for value in scored.token_log_probabilities)
    return f"{scored.log_probability:.6f}\t{tokens}"
