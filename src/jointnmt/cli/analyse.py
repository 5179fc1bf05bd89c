"""`jointnmt analyse`: where systems differ, by sentence length, position and token frequency."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from jointnmt.cli.console import numeric, stdout
from jointnmt.cli.edges import Edges, FrequencyEdges, buckets_of
from jointnmt.cli.lines import check_output_folder
from jointnmt.cli.options import (
    BatchCellsOption,
    DeviceOption,
    JsonOption,
    PrecisionOption,
    ReferenceOption,
    RunsArgument,
    SourceOption,
)
from jointnmt.cli.progress import ProgressBars
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.p_values import SIGNIFICANT, star
from jointnmt.testset.eval_set import EvalSet
from jointnmt.translator import LoadOptions

if TYPE_CHECKING:
    from jointnmt.analysis.buckets import BucketValue
    from jointnmt.analysis.corpus import Analysis


def analyse(
    runs: RunsArgument,
    source: SourceOption,
    reference: ReferenceOption,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where to write figures (.png), numbers (.csv), analysis.json."),
    ],
    metric: Annotated[
        list[str] | None, typer.Option(metavar="METRIC", help="bleu or chrf. Repeatable.", show_default="both")
    ] = None,
    length_edges: Edges = None,
    position_edges: Edges = None,
    frequency_edges: FrequencyEdges = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    batch_cells: BatchCellsOption = None,
) -> None:
    """Compare runs by length of the sentence, position in the target and frequency of the token.

    Each run translates the source and predicts the reference token by token. Length ratio, BLEU and chrF are given by
    source length in words; teacher-forced next-token accuracy by position, and by frequency in the run's own training
    text. Every bucket has its size, a 95% bootstrap interval and, for every run but the first, the p-value of the
    difference from the first by paired bootstrap. The figures correspond to Li et al. 2020, Figures 3 and 4. If a run
    writes lower case only, scores ignore case. After an interruption, the same command resumes.
    """
    from jointnmt.analysis.corpus import FREQUENCIES, LENGTHS, POSITIONS
    from jointnmt.report.analyses import Bucketing, analyses, write_analyses
    from jointnmt.testset.outputs import check_runs, outputs_of_runs

    wanted = metric or ["bleu", "chrf"]
    if unknown := sorted(set(wanted) - {"bleu", "chrf"}):
        raise ConfigurationError(f"--metric {', '.join(unknown)}: unknown. Choose bleu or chrf.")
    check_runs(runs)
    check_output_folder(out)
    edges = ((length_edges, LENGTHS), (position_edges, POSITIONS), (frequency_edges, FREQUENCIES))
    bucketing = Bucketing(*(buckets_of(given, default) for given, default in edges))
    eval_set = EvalSet(list(text_lines(source)), list(text_lines(reference)), str(source), str(reference))
    with ProgressBars() as progress:
        outputs, counts = outputs_of_runs(runs, eval_set, LoadOptions(device, precision, batch_cells), progress.update)
    found = analyses(outputs, eval_set, counts, wanted, bucketing)
    write_analyses(found, out)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], ensure_ascii=False))
        return
    for each in found:
        stdout().print(_table(each))


def _table(analysis: Analysis) -> Table:
    caption = f"95% intervals by bootstrap; n: {analysis.unit}"
    first, *others = analysis.systems
    if len(others) > len(analysis.other_tokens):
        caption += f"; *: p < {SIGNIFICANT} against {first}, by paired bootstrap"
    if analysis.other_tokens:
        caption += (
            f"; not compared, as their buckets hold other tokens than those of {first}: "
            f"{', '.join(analysis.other_tokens)}"
        )
    columns = numeric("n", *analysis.systems)
    table = Table(analysis.bucketed_by, *columns, title=analysis.title, caption=caption)
    for values in zip(*analysis.systems.values(), strict=True):
        sizes = sorted({value.size for value in values})
        table.add_row(
            values[0].bucket, " to ".join(f"{size:,}" for size in sizes[:: max(len(sizes) - 1, 1)]), *map(_cell, values)
        )
    return table


def _cell(value: BucketValue) -> str:
    if value.value is None:
        return ""
    text, interval = value.rounded()
    return text + star(value.p_value) + (f" ({interval})" if interval else "")
