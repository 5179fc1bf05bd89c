"""`jointnmt contrast`: contrastive evaluation of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from jointnmt.cli.console import stdout
from jointnmt.cli.contrast_report import OtherModel, show, suite_csv
from jointnmt.cli.lines import check_output, open_output
from jointnmt.cli.options import COMPRESSED, BatchCellsOption, DeviceOption, JsonOption, PrecisionOption, RunArgument
from jointnmt.cli.progress import ProgressBars
from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.contrastive import compare, judge_suite
from jointnmt.evaluation.contrastive_files import read_suite
from jointnmt.evaluation.contrastive_scores import Rule, ScoredItem
from jointnmt.evaluation.contrastive_suites import SuiteItem
from jointnmt.testset.contrast import check_languages, fitting_items, score_items
from jointnmt.text.languages import check_sides
from jointnmt.translator import Translator


def contrast(
    run: RunArgument,
    suite: Annotated[
        Path | None, typer.Argument(metavar="SUITE", help=f"A suite as JSON ({COMPRESSED}), or a folder of line pairs.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Instead of SUITE: source sentences, one a line.")] = None,
    right: Annotated[Path | None, typer.Option(help="Their right translations, line by line.")] = None,
    wrong: Annotated[Path | None, typer.Option(help="Their wrong translations, line by line.")] = None,
    kind: Annotated[
        Literal["contrawsd", "mucow", "lingeval97"] | None,
        typer.Option(help="Kind of the JSON suite.", show_default="detected"),
    ] = None,
    summed: Annotated[
        bool,
        typer.Option("--sum", help="Compare log-probabilities of whole translations instead of means over tokens."),
    ] = False,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another model, whose decisions are compared with those of RUN.")
    ] = None,
    scores: Annotated[Path | None, typer.Option(help="File for the scores of each item (JSON lines).")] = None,
    csv: Annotated[Path | None, typer.Option(help="File for all accuracies (CSV).")] = None,
    skip_long: Annotated[
        bool, typer.Option("--skip-long", help="Skip items that are too long for the model, and count them.")
    ] = False,
    any_language: Annotated[
        bool, typer.Option("--any-language", help="Accept a suite whose file name names other languages than RUN's.")
    ] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    batch_cells: BatchCellsOption = None,
) -> None:
    """Measure how often a model prefers correct translations to wrong ones (contrastive evaluation).

    SUITE is the JSON of ContraWSD, MuCoW or LingEval97, or a folder of minimal pairs, line by line (src.LANGUAGE,
    tgt.correct.LANGUAGE, tgt.incorrect.LANGUAGE, in it or in its subfolders); --source, --right and --wrong name such
    files one by one. It compares mean log-probabilities per token, end mark included, or with --sum their sums; ties
    count as wrong. With --against, two models are compared by an exact test over items. After an interruption, the same
    command resumes.
    """
    for path in (scores, csv):
        check_output(path, [suite, source, right, wrong])
    if scores is not None and csv is not None and scores.resolve() == csv.resolve():
        raise ConfigurationError(f"--scores and --csv: both name {csv}, and one would be overwritten. Name two files.")
    rule: Rule = "summed" if summed else "length-normalised"
    found, languages = read_suite(suite, {"--source": source, "--right": right, "--wrong": wrong}, kind)
    runs = [each for each in (run, against) if each is not None]
    models = [(each, Translator.load(each, device, precision, batch_cells)) for each in runs]
    for each, translator in models if not any_language else ():
        check_languages(each, translator, found.name, languages)
        if source is not None and right is not None:
            check_sides(str(source), str(right), translator.segmentation.languages)
    items, skipped = fitting_items(models, found, skip_long)
    with ProgressBars() as progress:
        scored = [score_items(translator, each, found.name, items, progress.update) for each, translator in models]
    result, *others = (judge_suite(found, each, rule) for each in scored)
    other = OtherModel(str(against), compare(result, others[0])) if others else None
    if scores is not None:
        _write_scores(scores, [*zip(runs, scored, strict=True)], skipped, rule)
    if csv is not None:
        with open_output(csv) as write:
            for row in suite_csv(result, None if other is None else other.differences):
                write(row)
    if as_json:
        plain = {"run": str(run), "skipped": len(skipped), **result.plain()}
        if other is not None:
            plain["against"] = {"run": other.run, **other.differences.plain()}
        typer.echo(json.dumps(plain, ensure_ascii=False))
    else:
        show(stdout(), str(run), result, len(skipped), other)


def _write_scores(
    path: Path, scored: Iterable[tuple[Path, Iterable[ScoredItem]]], skipped: Iterable[SuiteItem], rule: Rule
) -> None:
    """Write each item with its scores by each run, then the skipped items."""
    with open_output(path) as write:
        for run, items in scored:
            for each in items:
                write(json.dumps({"run": str(run), **each.plain(rule)}, ensure_ascii=False))
        for item in skipped:
            write(json.dumps({"item": item.number, "place": item.place, "skipped": "too long"}, ensure_ascii=False))
