"""`jointnmt report`: one page on several runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.lines import check_output
from jointnmt.cli.options import (
    BatchCellsOption,
    DeviceOption,
    PrecisionOption,
    ReferenceOption,
    RunsArgument,
    SourceOption,
)
from jointnmt.cli.progress import ProgressBars
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.files import write_text
from jointnmt.testset.eval_set import EvalSet
from jointnmt.translator import Translator

logger = logging.getLogger(__name__)


def report(
    runs: RunsArgument,
    source: SourceOption,
    reference: ReferenceOption,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Page to write (.html).")],
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    batch_cells: BatchCellsOption = None,
) -> None:
    """Write a report on several runs: sizes, scores, learning curves, analyses, sample translations, attention.

    The report is a single HTML file without external resources. Each run translates the source and predicts the
    reference token by token; the results are cached, so that the same command resumes after an interruption.
    Differences from the first run are tested by paired bootstrap resampling. If a run writes lower case only, scores
    and marks ignore case.
    """
    from jointnmt.report.contents import collect_contents
    from jointnmt.report.page import render
    from jointnmt.report.samples import attention_lines
    from jointnmt.report.systems import ReportedSystem, read_system
    from jointnmt.testset.outputs import check_runs, common_languages

    if out.suffix != ".html":
        raise ConfigurationError(f"--out {out}: the report is an HTML page. Give it a name that ends in .html.")
    check_runs(runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    check_output(out)
    eval_set = EvalSet(list(text_lines(source)), list(text_lines(reference)), str(source), str(reference))
    systems: list[ReportedSystem] = []
    with ProgressBars() as progress:
        for run in runs:
            translator = Translator.load(run, device, precision, batch_cells)
            common_languages([*(system.outputs.languages for system in systems), translator.segmentation.languages])
            lines = attention_lines(eval_set, translator.languages[0])
            systems.append(read_system(translator, run, eval_set, lines, progress.update))
    write_text(out, render(collect_contents(systems, eval_set)))
    logger.info("the report is in %s", out)
