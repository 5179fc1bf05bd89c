"""Differences of systems by length of the source, position in the target, and frequency of the token.

The analyses of Li et al. 2020, Figures 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from jointnmt.analysis.buckets import SAMPLES, Buckets, BucketValue, RatioTerms, ratios
from jointnmt.evaluation.likelihood import Likelihood
from jointnmt.evaluation.scores import TITLES, CorpusMetric, References, as_several, corpus_metrics
from jointnmt.evaluation.significance import (
    Comparison,
    Runs,
    resample,
    resample_likelihoods,
)

LENGTHS = Buckets((10, 20, 30, 40))
POSITIONS = Buckets((10, 20, 30, 40))
FREQUENCIES = Buckets((10, 100, 1000, 10_000), lowest=0)


@dataclass(frozen=True)
class Analysis:
    """One measure of several systems over the same buckets."""

    name: str
    """Name of its files."""
    title: str
    bucketed_by: str
    measure: str
    unit: str
    """Unit of a bucket's size."""
    systems: Mapping[str, Sequence[BucketValue]]
    ideal: float | None = None
    """Value of a perfect system, if it is not an end of the scale."""
    other_tokens: tuple[str, ...] = ()
    """Systems whose buckets have other tokens than the first's, so that the difference is not tested."""


@dataclass(frozen=True)
class Predictions:
    """Next-token predictions of one system for each sentence, end marks included, in its own pieces."""

    hits: Sequence[Sequence[bool]]
    """Whether the reference's token is the most probable one, given source and prefix."""
    frequencies: Sequence[Sequence[int]]
    """Counts of the reference's tokens in the training text."""
    tokens: Sequence[Sequence[int]] = ()
    """Ids of the reference's tokens; systems are compared only if these are equal."""


def length_ratios(
    translations: Mapping[str, Sequence[str]],
    references: Sequence[str],
    source_lengths: Sequence[int],
    count: Callable[[str], int],
    buckets: Buckets = LENGTHS,
) -> Analysis:
    """Length of translations over that of references, by length of the source (Figure 3, left).

    Args:
        translations: translations by each system.
        references: one reference for each sentence.
        source_lengths: source lengths in words; empty lines, of length 0, are left out.
        count: function that counts the tokens of a text.
        buckets: buckets of source lengths.
    """
    places = [[buckets.find(length)] if length >= buckets.lowest else [] for length in source_lengths]

    def lengths(texts: Sequence[str]) -> npt.NDArray[np.float64]:
        return _table([[count(text)] * len(at) for text, at in zip(texts, places, strict=True)], places, buckets)

    wholes = lengths(references)
    shares = {name: RatioTerms(lengths(texts), wholes) for name, texts in translations.items()}
    systems = ratios(shares, buckets.names)
    title = "Length of translations over length of references"
    return Analysis(
        "length-ratio", title, "words of the source", "length ratio", "reference tokens", systems, ideal=1.0
    )


def scores_by_length(
    translations: Mapping[str, Sequence[str]],
    references: Sequence[str],
    source_lengths: Sequence[int],
    language: str,
    metric: str,
    buckets: Buckets = LENGTHS,
    lowercase: bool = False,
) -> Analysis:
    """A metric such as BLEU over the sentences of each bucket of source lengths (Figure 3, right).

    `metric` is a key of `METRICS`; with `lowercase`, case is ignored. Intervals and p-values are by bootstrap.
    """
    measures = corpus_metrics(language, [metric], lowercase=lowercase)
    compared = list(comparisons_by_length(translations, references, source_lengths, measures, buckets))
    most = math.inf if metric == "ter" else 100.0
    systems = {name: [_score(each, name, most) for each in compared] for name in translations}
    title = f"{TITLES[metric]} by length of the source"
    return Analysis(f"{metric}-by-length", title, "words of the source", TITLES[metric], "sentences", systems)


def _score(compared: LengthComparison, system: str, most: float) -> BucketValue:
    """The score of a system's translations of the sentences in a bucket; intervals are cut to 0 to `most`."""
    if not compared.comparisons:
        return BucketValue(compared.bucket, compared.size, None)
    (found,) = (each for each in compared.comparisons[0].systems if each.system == system)
    value = BucketValue(compared.bucket, compared.size, found.score, p_value=found.p_value)
    if found.half_width is None:
        return value
    return replace(value, low=max(0.0, found.mean - found.half_width), high=min(most, found.mean + found.half_width))


@dataclass(frozen=True)
class LengthComparison:
    """Systems compared on the sentences of one bucket of source lengths."""

    bucket: str
    size: int
    """Number of sentences."""
    comparisons: Sequence[Comparison]
    """Comparisons by each metric, and by `nll` if likelihoods are given; none for an empty bucket."""

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return asdict(self)


def comparisons_by_length(
    systems: Mapping[str, Runs],
    references: References,
    source_lengths: Sequence[int],
    measures: Mapping[str, CorpusMetric],
    buckets: Buckets = LENGTHS,
    samples: int = SAMPLES,
    likelihoods: Mapping[str, Sequence[Likelihood]] | None = None,
) -> Iterator[LengthComparison]:
    """Comparisons as of `paired_bootstrap`, over runs and sentences, for each bucket of source lengths.

    Args:
        systems: translations of each system, or of each of its runs.
        references: one reference per sentence, or several.
        source_lengths: source lengths in words; empty lines, of length 0, are left out.
        measures: metrics from `corpus_metrics`.
        buckets: buckets of source lengths.
        samples: number of resampled test sets for a bucket.
        likelihoods: likelihoods as for `resample_likelihoods`, to compare by them too.
    """
    for label, rows in zip(buckets.names, buckets.rows(source_lengths), strict=True):

        def chosen(texts: Runs | References, rows: Sequence[int] = rows) -> Sequence[Sequence[str]]:
            return [[each[row] for row in rows] for each in as_several(texts)]

        parts = {name: chosen(runs) for name, runs in systems.items()}
        scored = resample(parts, chosen(references), measures, samples) if rows else []
        if rows and likelihoods:
            of_bucket = {name: [each.of(rows) for each in runs] for name, runs in likelihoods.items()}
            scored += resample_likelihoods(of_bucket, samples)
        yield LengthComparison(label, len(rows), [each.comparison() for each in scored])


def accuracies_by_position(predictions: Mapping[str, Predictions], buckets: Buckets = POSITIONS) -> Analysis:
    """Teacher-forced next-token accuracy by position, from 1 (Figure 4, left)."""
    places = {
        name: [[buckets.find(position) for position in range(1, len(row) + 1)] for row in each.hits]
        for name, each in predictions.items()
    }
    facts = "accuracy-by-position", "Next-token accuracy by position in the target", "position, in pieces"
    return _accuracies(facts, predictions, places, buckets)


def accuracies_by_frequency(predictions: Mapping[str, Predictions], buckets: Buckets = FREQUENCIES) -> Analysis:
    """Teacher-forced next-token accuracy by training frequency (Figure 4, right).

    Buckets have equal widths on a logarithmic scale; on a linear one, nearly all tokens would be in one bucket.
    """
    places = {
        name: [[buckets.find(frequency) for frequency in row] for row in each.frequencies]
        for name, each in predictions.items()
    }
    title = "Next-token accuracy by frequency of the token"
    facts = "accuracy-by-frequency", title, "occurrences in the training text"
    return _accuracies(facts, predictions, places, buckets)


def _accuracies(
    facts: tuple[str, str, str],
    predictions: Mapping[str, Predictions],
    places: Mapping[str, Sequence[Sequence[int]]],
    buckets: Buckets,
) -> Analysis:
    """Accuracies by the bucket of each token; `facts` are name, title and what is bucketed by.

    A system's buckets may have other tokens than the first's, due to other pieces or other training text: it then has
    no p-values.
    """
    shares = {}
    for name, each in predictions.items():
        everything = [[1] * len(row) for row in each.hits]
        shares[name] = RatioTerms(*(_table(amounts, places[name], buckets) for amounts in (each.hits, everything)))
    systems, first = ratios(shares, buckets.names), next(iter(predictions))
    others = tuple(
        name
        for name, each in predictions.items()
        if each.tokens != predictions[first].tokens or places[name] != places[first]
    )
    for name in others:
        systems[name] = [replace(value, p_value=None) for value in systems[name]]
    return Analysis(*facts, "accuracy", "target tokens", systems, other_tokens=others)


def _table(
    amounts: Sequence[Sequence[float]], places: Sequence[Sequence[int]], buckets: Buckets
) -> npt.NDArray[np.float64]:
    """Amounts of each sentence summed by bucket, `[sentences, buckets]`."""
    table = np.zeros((len(amounts), len(buckets)))
    for row, values, bins in zip(table, amounts, places, strict=True):
        np.add.at(row, list(bins), list(values))
    return table
