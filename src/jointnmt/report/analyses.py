"""The analyses of `analysis.corpus` for the outputs of runs on a test set."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jointnmt.analysis.buckets import Buckets
from jointnmt.analysis.corpus import (
    FREQUENCIES,
    LENGTHS,
    POSITIONS,
    Analysis,
    Predictions,
    accuracies_by_frequency,
    accuracies_by_position,
    length_ratios,
    scores_by_length,
)
from jointnmt.analysis.figures import analysis_csv, analysis_figure
from jointnmt.analysis.fonts import any_script, save_figure
from jointnmt.evaluation.scores import corpus_metrics
from jointnmt.files import write_text
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.outputs import RunOutputs, common_languages, ignores_case
from jointnmt.text.languages import num_words

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bucketing:
    """The buckets of each analysis."""

    lengths: Buckets = LENGTHS
    positions: Buckets = POSITIONS
    frequencies: Buckets = FREQUENCIES


def analyses(
    runs: Sequence[RunOutputs],
    eval_set: EvalSet,
    counts: Mapping[str, Sequence[int]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    bucketing: Bucketing = Bucketing(),
) -> list[Analysis]:
    """Length ratio and `metrics` by length of the source, next-token accuracy by position and by frequency.

    `counts` are those of target pieces in each run's training text (`training_counts`). Runs without counts are left
    out of the analysis by frequency; without any counts, there is none.

    Raises:
        ConfigurationError: if the runs have different languages.
    """
    source_language, language = common_languages([run.languages for run in runs])
    words = [num_words(text, source_language) for text in eval_set.sources]
    translations = {run.name: run.translations for run in runs}
    predictions = {run.name: _predictions(run, counts.get(run.name)) for run in runs}
    found = [length_ratios(translations, eval_set.references, words, _tokens(language), bucketing.lengths)]
    for metric in metrics:
        logger.info("%s by length of the source, with intervals", metric)
        settings = language, metric, bucketing.lengths, ignores_case(runs)
        found.append(scores_by_length(translations, eval_set.references, words, *settings))
    found.append(accuracies_by_position(predictions, bucketing.positions))
    counted = {name: each for name, each in predictions.items() if name in counts}
    return [*found, accuracies_by_frequency(counted, bucketing.frequencies)] if counted else found


def _predictions(run: RunOutputs, counts: Sequence[int] | None) -> Predictions:
    """A run's hits with the training frequencies of their tokens; 0 everywhere without `counts`."""
    frequencies = [[0 if counts is None else counts[i] for i in row] for row in run.target_ids]
    return Predictions(run.hits, frequencies, [list(row) for row in run.target_ids])


def write_analyses(found: Sequence[Analysis], out: Path) -> None:
    """Write a figure (.png) and its numbers (.csv) for each analysis, and all of them as `analysis.json`."""
    out.mkdir(parents=True, exist_ok=True)
    for each in found:
        write_text(out / f"{each.name}.csv", analysis_csv(each))
        with any_script():
            save_figure(analysis_figure(each), out / f"{each.name}.png", dpi=150)
    values = json.dumps([asdict(each) for each in found], ensure_ascii=False, indent=1)
    write_text(out / "analysis.json", values + "\n")
    logger.info("wrote %d figures with their numbers to %s", len(found), out)


def _tokens(language: str) -> Callable[[str], int]:
    """A function that counts tokens as BLEU does."""
    metric = corpus_metrics(language, ["bleu"])["bleu"].metric
    return lambda text: len(metric.tokenizer(text).split())  # type: ignore[attr-defined]
