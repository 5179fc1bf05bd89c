"""Where runs differ: the measures by bucket of `analysis.corpus`, of runs that have been measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jointnmt.analysis.buckets import Buckets
from jointnmt.analysis.corpus import (
    FREQUENCIES,
    LENGTHS,
    POSITIONS,
    Analysis,
    accuracies_by_frequency,
    accuracies_by_position,
    length_ratios,
    scores_by_length,
)
from jointnmt.evaluation.scores import measures
from jointnmt.testset.measuring import Measured, Texts, common_languages, ignores_case
from jointnmt.text.languages import LANGUAGES_WITHOUT_SPACES, base_language

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bucketing:
    """Where new buckets begin."""

    lengths: Buckets = LENGTHS
    positions: Buckets = POSITIONS
    frequencies: Buckets = FREQUENCIES


def analyses(
    runs: Sequence[Measured],
    texts: Texts,
    counts: Mapping[str, Sequence[int]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    bucketing: Bucketing = Bucketing(),
) -> list[Analysis]:
    """Length ratio and `metrics` by length of the source, next-token accuracy by position and by frequency.

    `counts` are of the target pieces in each run's training text (`training_counts`); a run without them is left out
    of the last analysis, which is left out itself if no run has any.

    Raises:
        ConfigurationError: if the runs are not of the same languages.
    """
    source_language, language = common_languages([run.languages for run in runs])
    words = [_words(text, source_language) for text in texts.sources]
    translations = {run.name: run.translations for run in runs}
    predictions = {run.name: run.predictions(counts.get(run.name)) for run in runs}
    found = [length_ratios(translations, texts.references, words, _tokens(language), bucketing.lengths)]
    for metric in metrics:
        logger.info("%s by length of the source, with intervals", metric)
        settings = language, metric, bucketing.lengths, ignores_case(runs)
        found.append(scores_by_length(translations, texts.references, words, *settings))
    found.append(accuracies_by_position(predictions, bucketing.positions))
    counted = {name: each for name, each in predictions.items() if name in counts}
    return [*found, accuracies_by_frequency(counted, bucketing.frequencies)] if counted else found


def _words(text: str, language: str) -> int:
    unspaced = base_language(language) in LANGUAGES_WITHOUT_SPACES
    return max(1, len("".join(text.split())) if unspaced else len(text.split()))


def _tokens(language: str) -> Callable[[str], int]:
    """Counts tokens as BLEU does."""
    metric = measures(language, ["bleu"])["bleu"].metric
    return lambda text: len(metric.tokenizer(text).split())  # type: ignore[attr-defined]
