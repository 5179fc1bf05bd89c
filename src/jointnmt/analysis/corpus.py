"""Where systems differ: by length of the source, position in the target, and frequency of the token.

The analyses of Li et al. 2020, Figures 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jointnmt.analysis.buckets import SAMPLES, Buckets, Value, ratios
from jointnmt.evaluation.scores import TITLES, measures

LENGTHS = Buckets((10, 20, 30, 40))
POSITIONS = Buckets((10, 20, 30, 40))
FREQUENCIES = Buckets((10, 100, 1000, 10_000), lowest=0)


@dataclass(frozen=True)
class Analysis:
    """One measure of several systems over the same buckets."""

    name: str
    """Of its files."""
    title: str
    bucketed_by: str
    measure: str
    unit: str
    """What a bucket's size counts."""
    systems: Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class Predictions:
    """Of each target token of each sentence, the end mark included, in one system's own pieces."""

    hits: Sequence[Sequence[bool]]
    """Whether the system finds it the most probable one, given the source and the reference so far."""
    frequencies: Sequence[Sequence[int]]
    """How often it stands in the training text."""


def length_ratios(
    translations: Mapping[str, Sequence[str]],
    references: Sequence[str],
    source_lengths: Sequence[int],
    count: Callable[[str], int],
    buckets: Buckets = LENGTHS,
) -> Analysis:
    """Length of translations over that of references, by length of the source (Figure 3, left).

    Args:
        translations: of each system.
        references: one for each sentence.
        source_lengths: in words.
        count: tokens of a text.
        buckets: of source lengths.
    """
    places = [buckets.find(length) for length in source_lengths]
    wholes = _table([[count(text)] for text in references], [[place] for place in places], buckets)
    systems = {}
    for name, texts in translations.items():
        parts = _table([[count(text)] for text in texts], [[place] for place in places], buckets)
        systems[name] = ratios(parts, wholes, buckets.names)
    title = "Length of translations over length of references"
    return Analysis("length-ratio", title, "words of the source", "length ratio", "reference tokens", systems)


def scores_by_length(
    translations: Mapping[str, Sequence[str]],
    references: Sequence[str],
    source_lengths: Sequence[int],
    language: str,
    metric: str,
    buckets: Buckets = LENGTHS,
    lowercase: bool = False,
) -> Analysis:
    """BLEU, say, of the sentences in each bucket of source lengths (Figure 3, right), as a corpus of their own.

    `metric` is a key of `METRICS`; `lowercase`: case is ignored. Intervals are sacrebleu's, by bootstrap.
    """
    measure = measures(language, [metric], lowercase=lowercase)[metric]
    places = [buckets.find(length) for length in source_lengths]
    prepared = measure.prepare(references)

    def value(texts: Sequence[str], bucket: int, name: str) -> Value:
        rows = [row for row, place in enumerate(places) if place == bucket]
        if not rows:
            return Value(name, 0, None)
        chosen = [[text[row] for row in rows] for text in (texts, prepared)]
        score = measure.metric.corpus_score(chosen[0], [chosen[1]], n_bootstrap=SAMPLES if len(rows) > 1 else 1)
        if len(rows) == 1:  # there is nothing to resample
            return Value(name, 1, float(score.score))
        mean, half_width = float(score._mean), float(score._ci)
        return Value(name, len(rows), float(score.score), mean - half_width, mean + half_width)

    systems = {}
    for name, texts in translations.items():
        ready = measure.prepare(texts)
        systems[name] = [value(ready, bucket, label) for bucket, label in enumerate(buckets.names)]
    title = f"{TITLES[metric]} by length of the source"
    return Analysis(f"{metric}-by-length", title, "words of the source", TITLES[metric], "sentences", systems)


def accuracies_by_position(predictions: Mapping[str, Predictions], buckets: Buckets = POSITIONS) -> Analysis:
    """Share of target tokens that a system predicts, teacher-forced, by position, from 1 (Figure 4, left)."""
    systems = {}
    for name, each in predictions.items():
        places = [[buckets.find(position) for position in range(1, len(row) + 1)] for row in each.hits]
        systems[name] = _accuracies(each.hits, places, buckets)
    title = "Next-token accuracy by position in the target"
    return Analysis("accuracy-by-position", title, "position, in pieces", "accuracy", "target tokens", systems)


def accuracies_by_frequency(predictions: Mapping[str, Predictions], buckets: Buckets = FREQUENCIES) -> Analysis:
    """Share of target tokens that a system predicts, teacher-forced, by training frequency (Figure 4, right).

    Buckets are of equal width on the logarithmic scale: on the linear one, nearly all tokens would be in one.
    """
    systems = {}
    for name, each in predictions.items():
        places = [[buckets.find(frequency) for frequency in row] for row in each.frequencies]
        systems[name] = _accuracies(each.hits, places, buckets)
    title = "Next-token accuracy by frequency of the token"
    by = "occurrences in the training text"
    return Analysis("accuracy-by-frequency", title, by, "accuracy", "target tokens", systems)


def _accuracies(hits: Sequence[Sequence[bool]], places: Sequence[Sequence[int]], buckets: Buckets) -> list[Value]:
    parts = _table(hits, places, buckets)
    return ratios(parts, _table([[1] * len(row) for row in hits], places, buckets), buckets.names)


def _table(
    amounts: Sequence[Sequence[float]], places: Sequence[Sequence[int]], buckets: Buckets
) -> npt.NDArray[np.float64]:
    """For each sentence, its amounts summed up in each bucket: `[sentences, buckets]`."""
    table = np.zeros((len(amounts), len(buckets)))
    for row, values, bins in zip(table, amounts, places, strict=True):
        np.add.at(row, list(bins), list(values))
    return table
