"""`jointnmt contrast`: does a model tell right translations from wrong ones?"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from jointnmt.cli.console import stdout
from jointnmt.cli.contrast_files import read_suite
from jointnmt.cli.contrast_report import Against, show, verdict_csv
from jointnmt.cli.lines import check_output, open_output
from jointnmt.cli.progress import Reports
from jointnmt.errors import DataError
from jointnmt.evaluation.contrastive import (
    Rule,
    ScoredItem,
    TargetScore,
    compare,
    distinct_pairs,
    judge,
    scored_items,
)
from jointnmt.evaluation.contrastive_suites import Item, Suite
from jointnmt.testset.records import Record, Work, kept_records
from jointnmt.text.languages import check_sides
from jointnmt.translator import TranslationOptions, Translator

logger = logging.getLogger(__name__)


def contrast(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a trained model.")],
    suite: Annotated[
        Path | None, typer.Argument(metavar="SUITE", help="A suite as JSON (also .gz, .xz), or a folder of line pairs.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Instead of SUITE: source sentences, one a line.")] = None,
    right: Annotated[Path | None, typer.Option(help="Their right translations, line by line.")] = None,
    wrong: Annotated[Path | None, typer.Option(help="Their wrong translations, line by line.")] = None,
    kind: Annotated[
        Literal["contrawsd", "mucow", "lingeval97"] | None,
        typer.Option(help="How the JSON is evaluated. Default: recognised."),
    ] = None,
    summed: Annotated[
        bool, typer.Option("--sum", help="Compare log-probabilities of whole translations, not means over tokens.")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another model, whose decisions are set beside those of RUN.")
    ] = None,
    scores: Annotated[Path | None, typer.Option(help="File for the scores of each item, as JSON lines.")] = None,
    csv: Annotated[Path | None, typer.Option(help="File for all accuracies, as CSV.")] = None,
    skip_long: Annotated[
        bool, typer.Option("--skip-long", help="Leave out items that are too long for the model, and count them.")
    ] = False,
    any_language: Annotated[
        bool, typer.Option("--any-language", help="Take a suite whose file name tells other languages than RUN's.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Of the model's computations.")
    ] = "float32",
    batch_cells: Annotated[
        int | None, typer.Option(min=1, help="Most cells at once: sentences * source * target.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Tell how often a model finds the right translation more probable than wrong ones (contrastive evaluation).

    SUITE is the JSON of ContraWSD, MuCoW or LingEval97, or a folder of minimal pairs, line by line (src.LANGUAGE,
    tgt.correct.LANGUAGE, tgt.incorrect.LANGUAGE, in it or in its subfolders); --source, --right and --wrong name such
    files one by one. Compared are mean log-probabilities per token, end mark included, or with --sum their sums. Equal
    ones count as wrong. With --against, an exact test says whether two models differ. Interrupted, the same command
    goes on where it stopped.
    """
    for path in (scores, csv):
        if path is not None:
            check_output(path)
    rule: Rule = "summed" if summed else "length-normalised"
    found, languages = read_suite(suite, {"--source": source, "--right": right, "--wrong": wrong}, kind)
    runs = [each for each in (run, against) if each is not None]
    models = [(each, Translator.load(each, device, precision, batch_cells)) for each in runs]
    for each, translator in models if not any_language else ():
        _check_languages(each, translator, found.name, languages)
        if source is not None and right is not None:
            check_sides(str(source), str(right), translator.segmentation.languages)
    items, skipped = _fitting(models, found, skip_long)
    _warn_of_identical(items)
    scored = [_scored(translator, each, found.name, items) for each, translator in models]
    verdict, *others = (judge(found, each, rule) for each in scored)
    other = Against(str(against), compare(verdict, others[0])) if others else None
    if scores is not None:
        _write_scores(scores, [*zip(runs, scored, strict=True)], skipped, rule)
    if csv is not None:
        with open_output(csv) as write:
            for row in verdict_csv(verdict, None if other is None else other.differences):
                write(row)
    if as_json:
        plain = {"run": str(run), "skipped": len(skipped), **verdict.plain()}
        if other is not None:
            plain["against"] = {"run": other.run, **other.differences.plain()}
        typer.echo(json.dumps(plain, ensure_ascii=False))
    else:
        show(stdout(), str(run), verdict, len(skipped), other)


def _check_languages(run: Path, translator: Translator, name: str, told: Sequence[tuple[str, str]]) -> None:
    languages = translator.segmentation.languages
    if told and languages not in told:
        raise DataError(
            f"{name}: by the names of its files, this suite is {' or '.join(map('-'.join, told))}, but {run} "
            f"translates {'-'.join(languages)}. Take another suite or model; if the names mislead, add --any-language."
        )


def _fitting(models: Sequence[tuple[Path, Translator]], suite: Suite, skip_long: bool) -> tuple[list[Item], list[Item]]:
    """The items that all models take, and those that are too long for one.

    Raises:
        DataError: naming the item, if it is too long and may not be skipped, or a model sees nothing in its source; if
            nothing is left.
    """
    items: Sequence[Item] = suite.items
    skipped: list[Item] = []
    for run, translator in models:
        items, more = _fitting_one(run, translator, items, skip_long)
        skipped += more
    if not items:
        raise DataError(f"{suite.name}: all {len(skipped)} items are too long for the model, so nothing is left.")
    return list(items), skipped


def _fitting_one(
    run: Path, translator: Translator, given: Sequence[Item], skip_long: bool
) -> tuple[list[Item], list[Item]]:
    sources = list(dict.fromkeys(item.source for item in given))
    encoded = translator.segmentation.source.encode_ids_batch([source.strip() for source in sources])
    lengths = {source: len(ids) + 1 for source, ids in zip(sources, encoded, strict=True)}
    largest = translator.experiment.model.max_length
    items, skipped = [], []
    for item in given:
        length = lengths[item.source]
        if length == 1:
            raise DataError(f"{item.place}: the source holds nothing that the model can read. Remove the item.")
        if largest is None or length <= largest:
            items.append(item)
            continue
        if not skip_long:
            raise DataError(
                f"{item.place}: the source has {length} tokens, end mark included, but {run} takes at most "
                f"{largest} (model.max_length). Remove the item, or have all such items left out (--skip-long)."
            )
        logger.debug("%s: the source has %d tokens, so the item is left out", item.place, length)
        skipped.append(item)
    if skipped:
        logger.info(
            "%d items, the first of them %s, have more than the %d tokens that %s takes, so they are left out",
            *(len(skipped), skipped[0].place, largest, run),
        )
    return items, skipped


def _scored(translator: Translator, run: Path, name: str, items: Sequence[Item]) -> list[ScoredItem]:
    """Score each distinct pair of source and translation once, or those that an interruption has left."""
    pairs = distinct_pairs(items)
    logger.info("%s: scoring %d translations of %d items", name, len(pairs), len(items))

    def scores(start: int) -> Iterator[Record]:
        sources, targets = zip(*pairs[start:], strict=True)
        for each in translator.score_stream(sources, targets, f"{name}, text pair"):
            record = TargetScore(each.log_probability, len(each.token_log_probabilities), " ".join(each.tokens))
            yield asdict(record)

    work = Work("scoring", {"pairs": pairs}, len(pairs), TranslationOptions.window, scores)
    with Reports() as reports:
        records = kept_records(translator, run, work, reports.tell)
    return [*scored_items(items, (TargetScore(**record) for record in records))]


def _write_scores(
    path: Path, scored: Iterable[tuple[Path, Iterable[ScoredItem]]], skipped: Iterable[Item], rule: Rule
) -> None:
    """Each item with its scores by each run, and then the items that have none."""
    with open_output(path) as write:
        for run, items in scored:
            for each in items:
                write(json.dumps({"run": str(run), **each.plain(rule)}, ensure_ascii=False))
        for item in skipped:
            write(json.dumps({"item": item.number, "place": item.place, "skipped": "too long"}, ensure_ascii=False))


def _warn_of_identical(items: Sequence[Item]) -> None:
    places = [item.place for item in items if any(each.text == item.reference for each in item.contrasts)]
    if places:
        logger.warning(
            "%d items have a contrast that is the reference itself (the first: %s): a tie, which counts as wrong",
            len(places),
            places[0],
        )
