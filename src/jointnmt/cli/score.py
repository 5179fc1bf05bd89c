"""`jointnmt score`: log-probabilities of given translations."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from jointnmt.cli.lines import check_output, check_parallel, open_output
from jointnmt.cli.options import (
    BatchCellsOption,
    DeviceOption,
    EnsembleArgument,
    OutputOption,
    PrecisionOption,
    SourceOption,
    TargetOption,
)
from jointnmt.data.lines import text_lines
from jointnmt.runs.members import members_of
from jointnmt.text.languages import check_sides
from jointnmt.translator import ScoredTranslation, Translator


def score(
    run: EnsembleArgument,
    source: SourceOption,
    target: TargetOption,
    pieces: Annotated[
        bool,
        typer.Option(
            "--pieces", help="The target is pieces separated by spaces (tokens of `translate --json`), not text."
        ),
    ] = False,
    output: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object a line, with tokens.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    batch_cells: BatchCellsOption = None,
) -> None:
    """Give the log-probability (natural logarithm) of each translation, and of each of its tokens.

    Each line of output has the total, a tab, and the log-probabilities of the tokens, end mark last, separated by
    spaces.
    """
    check_output(output, [source, target])
    check_parallel(source, target)
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
