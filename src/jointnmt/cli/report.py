"""`jointnmt report`: one page about several runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.lines import check_output, text_lines
from jointnmt.cli.progress import Reports
from jointnmt.evaluation.scores import METRICS, corpus_scores, measures
from jointnmt.evaluation.significance import paired_bootstrap
from jointnmt.report.analyses import analyses
from jointnmt.report.page import Report, render
from jointnmt.report.samples import attention_lines, different_lines, sample, spread_lines
from jointnmt.report.systems import System, read_system
from jointnmt.runs.checkpoint import write_text
from jointnmt.testset.measuring import Texts, check_runs, common_languages, ignores_case
from jointnmt.translator import Translator

logger = logging.getLogger(__name__)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The runs to report on, the baseline first.")],
    source: Annotated[Path, typer.Option(help="File of source sentences (plain, .gz, .xz).")],
    reference: Annotated[Path, typer.Option(help="File of their translations, line by line.")],
    out: Annotated[Path, typer.Option(help="The page to write (HTML).")],
    device: Annotated[str, typer.Option(help="Where runs compute: auto, cpu or cuda.")] = "auto",
) -> None:
    """Write one page about several runs: sizes, scores, learning curves, analyses, sample translations, attention.

    The page is a single file that loads nothing: pictures, styles and numbers are all in it. Each run translates the
    source, and predicts the reference token by token. Translations and predictions are kept in the cache: interrupted,
    the same command goes on where it stopped. Differences from the first run are tested by paired bootstrap resampling.
    If a run writes lower case only, scores and marks ignore case.
    """
    check_runs(runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    check_output(out)
    texts = Texts(list(text_lines(source)), list(text_lines(reference)), str(source), str(reference))
    systems: list[System] = []
    with Reports() as reports:
        for run in runs:
            translator = Translator.load(run, device)
            common_languages([*(system.measured.languages for system in systems), translator.segmentation.languages])
            systems.append(read_system(translator, run, texts, attention_lines(texts), reports.tell))
    write_text(out, render(_report(systems, texts)))
    logger.info("the report is in %s", out)


def _report(systems: list[System], texts: Texts) -> Report:
    measured = [system.measured for system in systems]
    language = measured[0].languages[1]
    logger.info("scoring %d systems by %s", len(systems), ", ".join(METRICS))
    lowercase = ignores_case(measured)
    scores = [corpus_scores(each.translations, texts.references, language, lowercase=lowercase) for each in measured]
    comparisons = []
    if len(systems) > 1:
        logger.info("comparing %d systems on resampled test sets", len(systems))
        outputs = {each.name: each.translations for each in measured}
        comparisons = paired_bootstrap(outputs, texts.references, measures(language, lowercase=lowercase))
    counts = {system.name: system.counts for system in systems if system.counts is not None}
    spread = spread_lines(len(texts.sources))
    different = [line for line in different_lines(measured, texts, len(spread) * 2) if line not in spread]
    samples = {
        "Lines evenly spread over the text": [sample(measured, texts, line) for line in spread],
        "Lines on which the systems differ most": [sample(measured, texts, line) for line in different[: len(spread)]],
    }
    return Report(texts, systems, scores, comparisons, analyses(measured, texts, counts), samples)
