"""Significance of differences between systems: paired bootstrap resampling (Koehn, 2004) of sacrebleu's statistics."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.resampling import Numbers, half_width, two_sided
from jointnmt.evaluation.scores import CorpusMetric, References, as_several, check_parallel
from jointnmt.evaluation.seeds import SampledRuns, SeedEstimate, seed_difference, seed_interval

logger = logging.getLogger(__name__)

Runs = Sequence[str] | Sequence[Sequence[str]]
"""The translations of a system: of its only run, or of each of its runs."""

SEED = 12345
"""sacrebleu's seed of resampling."""
FEWEST_COMPARED = 10
"""Fewest sentences for a p-value; resampling fewer says too little."""


@dataclass(frozen=True)
class BootstrapResult:
    """A system's score by one metric, with its bootstrap interval and p-value."""

    system: str
    score: float
    """On the test set; of several runs, their mean."""
    mean: float
    """Mean over the resampled test sets."""
    half_width: float
    """Half the width of the 95% interval around `mean`: over sentences, for these very runs."""
    p_value: float | None
    """Of the difference from the first system, two-sided, for these very runs; None for the first system, and with
    fewer than `FEWEST_COMPARED` sentences."""
    runs: tuple[float, ...] = ()
    """The score of each run."""
    deviation: float | None = None
    """Standard deviation of the runs; None of a single run."""
    over_seeds: SeedEstimate | None = None
    """The score, with its interval over seeds and sentences; None of a single run."""
    difference: SeedEstimate | None = None
    """From the first system, over seeds and sentences, never surer than over sentences alone; None where `p_value` is,
    or if both are single runs."""


@dataclass(frozen=True)
class Comparison:
    """All systems by one metric, compared with the first one."""

    metric: str
    systems: tuple[BootstrapResult, ...]
    signature: str
    """sacrebleu's signature with the number of resamplings (`bs`) and the seed (`seed`)."""


def paired_bootstrap(
    systems: Mapping[str, Runs],
    references: References,
    measures: Mapping[str, CorpusMetric],
    samples: int = 1000,
) -> list[Comparison]:
    """Compare each system with the first one, by each of the `measures`, on `samples` resampled test sets.

    Seed, resampled texts and intervals are those of `sacrebleu --paired-bs`; SACREBLEU_SEED sets another seed. The
    p-value is two-sided (see `two_sided`): sacrebleu's is one-sided, and below 0.05 for about one in eight systems that
    do not differ. A system of several runs has their mean score on each text; `seeds.py` then also asks whether other
    seeds would show the difference.

    Args:
        systems: the translations of each, or those of each of its runs.
        references: of each sentence, one or several.
        measures: as of `corpus_metrics`.
        samples: number of resampled test sets.

    Raises:
        DataError: if the numbers of translations and references differ, or there are none.
        ConfigurationError: if SACREBLEU_SEED is not a seed.
        ValueError: if there are fewer than two systems, and these are single runs.
    """
    if len(systems) < 2 and all(len(as_several(each)) < 2 for each in systems.values()):
        raise ValueError("a comparison takes two or more systems")
    if (sentences := len(as_several(references)[0])) < FEWEST_COMPARED:
        logger.warning("%d sentences are too few to compare systems: no p-values", sentences)
    return bootstrap(systems, references, measures, samples)


def bootstrap(
    systems: Mapping[str, Runs], references: References, measures: Mapping[str, CorpusMetric], samples: int = 1000
) -> list[Comparison]:
    """Likewise, of as few systems and sentences as there are.

    Raises:
        DataError, ConfigurationError: as `paired_bootstrap` does.
    """
    runs, sets = {name: as_several(texts) for name, texts in systems.items()}, as_several(references)
    for name, each in runs.items():
        for hypotheses in each:
            check_parallel(hypotheses, sets[0], name)
    return [_compare(runs, sets, key, measure, samples) for key, measure in measures.items()]


def _compare(
    systems: Mapping[str, Sequence[Sequence[str]]],
    references: Sequence[Sequence[str]],
    key: str,
    measure: CorpusMetric,
    samples: int,
) -> Comparison:
    sentences, seed = len(references[0]), _seed()
    sampled = list(_sampled(systems, references, measure, list(_draw(sentences, samples, seed))))
    results = []
    for name, each in zip(systems, sampled, strict=True):
        compared = each is not sampled[0] and sentences >= FEWEST_COMPARED
        results.append(_result(name, each, sampled[0] if compared else None))
    signature = measure.metric.get_signature()
    signature.update("bs", samples)
    signature.update("seed", str(seed).lower())
    return Comparison(key, tuple(results), measure.describe(signature))


def _sampled(
    systems: Mapping[str, Sequence[Sequence[str]]],
    references: Sequence[Sequence[str]],
    measure: CorpusMetric,
    drawn: Sequence[npt.NDArray[np.intp]],
) -> Iterator[SampledRuns]:
    """The scores of each system's runs on the test text and on the resampled ones."""
    metric, prepared = measure.metric, [measure.prepare(texts) for texts in references]
    for runs in systems.values():
        scores, resampled = [], []
        for texts in runs:
            statistics = np.array(metric._extract_corpus_statistics(measure.prepare(texts), prepared), np.float64)
            scores.append(_score(metric, statistics.sum(0)))  # of [sentences, statistics]
            resampled.append([_score(metric, counts @ statistics) for counts in drawn])
        yield SampledRuns(np.array(scores), np.array(resampled).T)


def _result(name: str, system: SampledRuns, first: SampledRuns | None) -> BootstrapResult:
    """Of a system; `first`, if given, is the one to compare it with."""
    means = system.resampled.mean(1)
    result = BootstrapResult(
        system=name,
        score=system.mean,
        mean=float(means.mean()),
        half_width=half_width(means),
        p_value=None,
        runs=tuple(map(float, system.scores)),
        deviation=system.deviation,
        over_seeds=seed_interval(system),
    )
    if first is None:
        return result
    p_value = two_sided(system.mean - first.mean, means - first.resampled.mean(1))
    return replace(result, p_value=p_value, difference=seed_difference(system, first))


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
