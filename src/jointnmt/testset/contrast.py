"""Contrastive suites on runs: the items that every model accepts, and their scores, computed once and cached."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from jointnmt.errors import DataError
from jointnmt.evaluation.contrastive_scores import ScoredItem, TargetScore, distinct_pairs, scored_items
from jointnmt.evaluation.contrastive_suites import Suite, SuiteItem
from jointnmt.testset.records import CachedTask, ProgressCallback, Record, cached_records
from jointnmt.text.languages import base_language
from jointnmt.translator import Translator

logger = logging.getLogger(__name__)


def check_languages(run: Path, translator: Translator, suite: str, named: Sequence[tuple[str, str]]) -> None:
    """Refuse a suite whose file names indicate other languages than the run's.

    Args:
        run: the RUN directory, for the message.
        translator: the run's translator.
        suite: the name of the suite.
        named: the language pairs that the file names allow; empty if they do not indicate any.

    Raises:
        DataError: if the run's languages, ignoring regions, are not among them.
    """
    languages = translator.segmentation.languages
    expected = tuple(map(base_language, languages))
    if named and expected not in [tuple(map(base_language, pair)) for pair in named]:
        raise DataError(
            f"{suite}: by the names of its files, this suite is {' or '.join(map('-'.join, named))}, but {run} "
            f"translates {'-'.join(languages)}. Use another suite or model; if the names mislead, add --any-language."
        )


def fitting_items(
    models: Sequence[tuple[Path, Translator]], suite: Suite, skip_long: bool
) -> tuple[list[SuiteItem], list[SuiteItem]]:
    """The items with a source that fits every model, and with `skip_long` the skipped ones.

    Raises:
        DataError: naming the item, if it is too long and may not be skipped, or its source has no pieces; if no item
            is left.
    """
    items: Sequence[SuiteItem] = suite.items
    skipped: list[SuiteItem] = []
    for run, translator in models:
        items, more = _fitting_one(run, translator, items, skip_long)
        skipped += more
    if not items:
        raise DataError(f"{suite.name}: all {len(skipped)} items are too long for the model, so nothing is left.")
    _warn_of_identical(items)
    return list(items), skipped


def _fitting_one(
    run: Path, translator: Translator, given: Sequence[SuiteItem], skip_long: bool
) -> tuple[list[SuiteItem], list[SuiteItem]]:
    preprocessor = translator.preprocessor()
    sources = list(dict.fromkeys(item.source for item in given))
    encoded = preprocessor.sources([source.strip() for source in sources])
    read = dict(zip(sources, encoded, strict=True))
    items, skipped = [], []
    for item in given:
        if not read[item.source][0]:
            raise DataError(f"{item.place}: the source is empty for the model: it has no pieces. Remove the item.")
        if (excess := preprocessor.excess(read[item.source])) is None:
            items.append(item)
            continue
        if not skip_long:
            raise DataError(
                f"{item.place}: the source has {excess.tokens} tokens, end mark included, but {run} takes at most "
                f"{excess.most} (model.max_length). Remove the item, or skip all such items (--skip-long)."
            )
        logger.debug("%s: the source has %d tokens, so the item is skipped", item.place, excess.tokens)
        skipped.append(item)
    if skipped:
        logger.info(
            "%d items, the first of them %s, have more tokens than %s takes and are skipped",
            *(len(skipped), skipped[0].place, run),
        )
    return items, skipped


def _warn_of_identical(items: Sequence[SuiteItem]) -> None:
    places = [item.place for item in items if any(each.text == item.reference for each in item.contrasts)]
    if places:
        logger.warning(
            "%d items have a contrast that is the reference itself (the first: %s): a tie, which counts as wrong",
            len(places),
            places[0],
        )


def score_items(
    translator: Translator, run: Path, suite: str, items: Sequence[SuiteItem], progress: ProgressCallback
) -> list[ScoredItem]:
    """The items with the model's scores. Each distinct pair of source and translation is scored once, and cached."""
    pairs = distinct_pairs(items)
    logger.info("%s: scoring %d translations of %d items", suite, len(pairs), len(items))

    def scores(done: int) -> Iterator[Record]:
        sources, targets = zip(*pairs, strict=True)
        for each in translator.score_stream(sources, targets, f"{suite}, text pair", done=done):
            record = TargetScore(each.log_probability, len(each.token_log_probabilities), " ".join(each.tokens))
            yield asdict(record)

    task = CachedTask("scoring", {"pairs": pairs}, len(pairs), scores)
    records = cached_records(translator, run, task, progress)
    return [*scored_items(items, (TargetScore(**record) for record in records))]
