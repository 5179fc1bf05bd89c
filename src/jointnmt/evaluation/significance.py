"""Significance of differences between systems: paired bootstrap resampling (Koehn, 2004) of sacrebleu's statistics."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.scores import CorpusMetric, check_parallel

logger = logging.getLogger(__name__)

Numbers = npt.NDArray[np.float64]

SEED = 12345
"""sacrebleu's seed of resampling."""
SIGNIFICANT = 0.05
"""p-values below it are starred in tables and figures."""
FEWEST_COMPARED = 10
"""Fewest sentences for a p-value; resampling fewer says too little."""


@dataclass(frozen=True)
class BootstrapResult:
    """A system's score by one metric, with its bootstrap interval and p-value."""

    system: str
    score: float
    mean: float
    """Mean over the resampled test sets."""
    half_width: float
    """Half the width of the 95% interval around `mean`."""
    p_value: float | None
    """Of the difference from the first system, two-sided; None for the first system, and with fewer than
    `FEWEST_COMPARED` sentences."""


@dataclass(frozen=True)
class Comparison:
    """All systems by one metric, compared with the first one."""

    metric: str
    systems: tuple[BootstrapResult, ...]
    signature: str
    """sacrebleu's signature with the number of resamplings (`bs`) and the seed (`seed`)."""


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    measures: Mapping[str, CorpusMetric],
    samples: int = 1000,
) -> list[Comparison]:
    """Compare each system with the first one, by each of the `measures`, on `samples` resampled test sets.

    Seed, resampled texts and intervals are those of `sacrebleu --paired-bs`; SACREBLEU_SEED sets another seed. The
    p-value is two-sided (see `two_sided`): sacrebleu's is one-sided, and below 0.05 for about one in eight systems that
    do not differ.

    Raises:
        DataError: if the numbers of translations and references differ, or there are none.
        ConfigurationError: if SACREBLEU_SEED is not a seed.
        ValueError: if there are fewer than two systems.
    """
    if len(systems) < 2:
        raise ValueError("a comparison takes two or more systems")
    for name, hypotheses in systems.items():
        check_parallel(hypotheses, references, name)
    if len(references) < FEWEST_COMPARED:
        logger.warning("%d sentences are too few to compare systems: no p-values", len(references))
    return [_compare(systems, references, key, measure, samples) for key, measure in measures.items()]


def two_sided(difference: float, resampled: Numbers) -> float:
    """The two-sided p-value of a difference, given the difference of each resampled text.

    It is the share of texts, the original one counted, whose difference deviates from the observed one by at least its
    absolute value.
    """
    as_large = np.abs(resampled - difference) >= abs(difference)
    return float((1 + np.count_nonzero(as_large)) / (1 + len(resampled)))


def _compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], key: str, measure: CorpusMetric, samples: int
) -> Comparison:
    from sacrebleu.significance import estimate_ci  # installed, or there would be no measure

    metric, prepared = measure.metric, [measure.prepare(references)]
    statistics = [
        np.array(metric._extract_corpus_statistics(measure.prepare(texts), prepared), np.float64)
        for texts in systems.values()
    ]  # [sentences, statistics] each
    scores = [_score(metric, each.sum(0)) for each in statistics]
    seed = _seed()
    resampled = np.array(
        [[_score(metric, counts @ each) for each in statistics] for counts in _draw(len(references), samples, seed)]
    )  # [samples, systems]
    results = []
    for index, (name, score) in enumerate(zip(systems, scores, strict=True)):
        mean, half_width = estimate_ci(resampled[:, index])
        differences = resampled[:, index] - resampled[:, 0]
        compared = index > 0 and len(references) >= FEWEST_COMPARED
        p_value = two_sided(score - scores[0], differences) if compared else None
        results.append(BootstrapResult(name, score, float(mean), float(half_width), p_value))
    signature = metric.get_signature()
    signature.update("bs", samples)
    signature.update("seed", str(seed).lower())
    return Comparison(key, tuple(results), measure.describe(signature))


def _score(metric: Any, statistics: Numbers) -> float:
    """The score for statistics summed over sentences."""
    return float(metric._compute_score_from_stats(statistics.tolist()).score)


def _seed() -> int | None:
    """SACREBLEU_SEED as sacrebleu reads it; `none` draws other texts each time."""
    given = os.environ.get("SACREBLEU_SEED", str(SEED)).lower()
    if given != "none" and not (given.isascii() and given.isdigit()):
        raise ConfigurationError(f"SACREBLEU_SEED is {given!r}; it must be a whole number, 0 or more, or none.")
    return None if given == "none" else int(given)


def _draw(sentences: int, samples: int, seed: int | None) -> Iterator[npt.NDArray[np.intp]]:
    """The number of occurrences of each sentence, for each resampled text."""
    generator = np.random.default_rng(seed)
    for _ in range(samples):
        yield np.bincount(generator.choice(sentences, size=sentences), minlength=sentences)
