"""Significance of differences between systems: paired bootstrap resampling (Koehn, 2004) of sentences' statistics.

The statistics are sacrebleu's for translations, or the log-probabilities of the references.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.likelihood import Likelihood
from jointnmt.evaluation.resampling import Numbers, half_width, two_sided
from jointnmt.evaluation.scores import CorpusMetric, References, as_several, check_parallel
from jointnmt.evaluation.seeds import SampledRuns, SeedEstimate, seed_difference

logger = logging.getLogger(__name__)

Runs = Sequence[str] | Sequence[Sequence[str]]
"""Translations of a system by its only run, or by each of its runs."""

SEED = 12345
"""sacrebleu's default seed of resampling."""
FEWEST_COMPARED = 10
"""Fewest sentences for a p-value; resampling fewer is not meaningful."""


@dataclass(frozen=True)
class BootstrapResult:
    """A system's score by one metric, with its bootstrap interval and p-value."""

    system: str
    score: float
    """Score on the test set; for several runs, their mean."""
    mean: float
    """Mean over the resampled test sets."""
    half_width: float | None
    """Half the width of the 95% interval around `mean`: over sentences, for these very runs; None for one sentence."""
    p_value: float | None
    """Two-sided p-value of the difference from the first system, for these very runs; None for the first system, and
    with fewer than `FEWEST_COMPARED` sentences."""
    runs: tuple[float, ...] = ()
    """The score of each run."""
    deviation: float | None = None
    """Standard deviation of the runs; None for a single run."""
    difference: SeedEstimate | None = None
    """Difference from the first system, over seeds and sentences, never more certain than over sentences alone; None if
    `p_value` is None or both systems are single runs."""


@dataclass(frozen=True)
class Comparison:
    """The systems by one metric, compared with the first one."""

    metric: str
    systems: tuple[BootstrapResult, ...]
    signature: str
    """sacrebleu's signature with the number of resamplings (`bs`) and the seed (`seed`)."""

    @property
    def decimals(self) -> int:
        """Number of decimals to show: 3 for nats, 2 for other scores."""
        return 3 if self.metric == "nll" else 2

    def of(self, system: str) -> BootstrapResult | None:
        """The result of a system; None if it could not be compared by this metric."""
        return next((each for each in self.systems if each.system == system), None)


@dataclass(frozen=True)
class ResampledScores:
    """Scores of systems by one metric, on the test text and on resampled texts that are the same for all."""

    metric: str
    systems: Mapping[str, SampledRuns]
    sentences: int
    signature: str
    """See `Comparison`."""

    def comparison(self, *names: str) -> Comparison:
        """These systems, or all of them, compared with the first."""
        chosen = {name: self.systems[name] for name in names or self.systems}
        first, *others = chosen.items()
        begin = first[1] if self.sentences >= FEWEST_COMPARED else None
        results = [self._result(*first, None), *(self._result(*other, begin) for other in others)]
        return Comparison(self.metric, tuple(results), self.signature)

    def _result(self, name: str, system: SampledRuns, first: SampledRuns | None) -> BootstrapResult:
        """The result of a system; `first`, if given, is the one to compare it with."""
        means = system.resampled.mean(1)
        result = BootstrapResult(
            system=name,
            score=system.mean,
            mean=float(means.mean()),
            half_width=half_width(means) if self.sentences > 1 else None,
            p_value=None,
            runs=tuple(map(float, system.scores)),
            deviation=system.deviation,
        )
        if first is None:
            return result
        p_value = two_sided(system.mean - first.mean, means - first.resampled.mean(1))
        return replace(result, p_value=p_value, difference=seed_difference(system, first))


def paired_bootstrap(
    systems: Mapping[str, Runs],
    references: References,
    measures: Mapping[str, CorpusMetric],
    samples: int = 1000,
) -> list[Comparison]:
    """Compare each system with the first one, by each of the `measures`, on `samples` resampled test sets.

    Seed, resampled texts and intervals are those of `sacrebleu --paired-bs`; SACREBLEU_SEED sets another seed. The
    p-value is two-sided (see `two_sided`): sacrebleu's is one-sided, and below 0.05 for about one in eight systems that
    do not differ. A system of several runs has their mean score on each text; its difference is also tested over seeds
    (`seeds.py`).

    Args:
        systems: translations of each system, or of each of its runs.
        references: one reference per sentence, or several.
        measures: metrics from `corpus_metrics`.
        samples: number of resampled test sets.

    Raises:
        DataError: if the numbers of translations and references differ, or there are none.
        ConfigurationError: if SACREBLEU_SEED is not a seed.
        ValueError: if there are fewer than two systems, and no system of several runs.
    """
    if len(systems) < 2 and all(len(as_several(each)) < 2 for each in systems.values()):
        raise ValueError("a comparison takes two or more systems")
    warn_of_few(len(as_several(references)[0]))
    return [each.comparison() for each in resample(systems, references, measures, samples)]


def warn_of_few(sentences: int) -> None:
    """Warn if there are too few sentences for p-values."""
    if sentences < FEWEST_COMPARED:
        logger.warning("fewer than %d sentences are not compared: no p-values (%d here)", FEWEST_COMPARED, sentences)


def resample(
    systems: Mapping[str, Runs], references: References, measures: Mapping[str, CorpusMetric], samples: int = 1000
) -> list[ResampledScores]:
    """Resampled scores for `paired_bootstrap`, for any number of systems and sentences; any two can be compared.

    Raises:
        DataError, ConfigurationError: as in `paired_bootstrap`.
    """
    runs, sets = {name: as_several(texts) for name, texts in systems.items()}, as_several(references)
    for name, each in runs.items():
        for hypotheses in each:
            check_parallel(hypotheses, sets[0], name)
    resampling = _Resampling.of(len(sets[0]), samples)
    return [_by_metric(key, measure, runs, sets, resampling) for key, measure in measures.items()]


def likelihood_bootstrap(
    systems: Mapping[str, Sequence[Likelihood]], samples: int = 1000, chosen: Sequence[bool] | None = None
) -> list[Comparison]:
    """Compare the systems as in `paired_bootstrap`, by their likelihoods of the references.

    Arguments and errors are those of `resample_likelihoods`; the list is empty if that returns no scores.
    """
    return [each.comparison() for each in resample_likelihoods(systems, samples, chosen)]


def resample_likelihoods(
    systems: Mapping[str, Sequence[Likelihood]], samples: int, chosen: Sequence[bool] | None = None
) -> list[ResampledScores]:
    """Scores of the systems' runs by likelihood of the references, on the test text and on resampled ones.

    The score is `Likelihood.nll`, lower is better. It resolves smaller differences than BLEU, as it depends on every
    piece and not on search. Systems with a run whose segmentation differs from the first one's are left out.

    Args:
        systems: likelihoods of the same references under each system's runs, all of them or none.
        samples: number of resampled test sets.
        chosen: if given, whether each sentence is chosen; the score is then the `nll` of the chosen sentences minus
            that of the others, so that systems are compared by the additional loss on chosen sentences.

    Returns:
        The scores; none if the first system has no likelihoods, or fewer than two runs can be compared.

    Raises:
        ConfigurationError: as in `paired_bootstrap`.
    """
    first = next(iter(systems.values()), ())
    pieces = {each.segmentation for each in first}
    statistics = {
        name: [_losses(each, chosen) for each in runs]
        for name, runs in systems.items()
        if runs and {each.segmentation for each in runs} == pieces
    }
    if len(pieces) != 1 or sum(map(len, statistics.values())) < 2:
        return []
    resampling = _Resampling.of(len(first[0].pieces), samples)
    signature = f"nats a piece|teacher-forced|bs:{samples}|seed:{resampling.seed}".lower()
    return [ResampledScores("nll", resampling.scores(statistics, _nll), len(first[0].pieces), signature)]


def _losses(likelihood: Likelihood, chosen: Sequence[bool] | None) -> Numbers:
    """Loss and pieces of each sentence, `[sentences, 2]`; with `chosen`, `[sentences, 4]`: chosen, then others."""
    found = np.stack([np.negative(likelihood.log_probabilities), np.array(likelihood.pieces, np.float64)], 1)
    if chosen is None:
        return found
    mask = np.array(chosen)[:, None]
    return np.concatenate([found * mask, found * ~mask], 1)


def _nll(summed: Numbers) -> float:
    """Nats per piece, or the difference of chosen and other sentences, given the sum of `_losses`."""
    values = [loss / max(pieces, 1.0) for loss, pieces in summed.reshape(-1, 2)]
    return float(values[0] - values[1] if len(values) > 1 else values[0])


@dataclass(frozen=True)
class _Resampling:
    """The same resampled texts for all systems and metrics."""

    seed: int | None
    counts: Numbers
    """Occurrences of each sentence, `[samples, sentences]`."""

    @classmethod
    def of(cls, sentences: int, samples: int) -> Self:
        seed = resampling_seed()
        return cls(seed, np.array(list(_draw(sentences, samples, seed)), np.float64))

    def scores(
        self, systems: Mapping[str, Sequence[Numbers]], score: Callable[[Numbers], float]
    ) -> dict[str, SampledRuns]:
        """Scores of each system on the test text and on the resampled ones.

        `systems` are the statistics `[sentences, statistics]` of its runs, `score` maps their sums.
        """
        found = {}
        for name, runs in systems.items():
            scores = [score(statistics.sum(0)) for statistics in runs]
            resampled = [[score(summed) for summed in self.counts @ statistics] for statistics in runs]
            found[name] = SampledRuns(np.array(scores), np.array(resampled).T)
        return found


def _by_metric(
    key: str,
    measure: CorpusMetric,
    systems: Mapping[str, Sequence[Sequence[str]]],
    references: Sequence[Sequence[str]],
    resampling: _Resampling,
) -> ResampledScores:
    statistics = {name: [measure.statistics(texts, references) for texts in runs] for name, runs in systems.items()}
    sampled = resampling.scores(statistics, lambda summed: float(measure.total(summed).score))
    signature = measure.metric.get_signature()
    signature.update("bs", len(resampling.counts))
    signature.update("seed", str(resampling.seed).lower())
    return ResampledScores(key, sampled, len(references[0]), measure.describe(signature))


def resampling_seed() -> int | None:
    """The seed SACREBLEU_SEED as sacrebleu reads it; None (`none`) draws other texts each time.

    Raises:
        ConfigurationError: if it is not a seed.
    """
    given = os.environ.get("SACREBLEU_SEED", str(SEED)).lower()
    if given != "none" and not (given.isascii() and given.isdigit()):
        raise ConfigurationError(f"SACREBLEU_SEED is {given!r}; it must be a whole number, 0 or more, or none.")
    return None if given == "none" else int(given)


def _draw(sentences: int, samples: int, seed: int | None) -> Iterator[npt.NDArray[np.intp]]:
    """The number of occurrences of each sentence, for each resampled text."""
    generator = np.random.default_rng(seed)
    for _ in range(samples):
        yield np.bincount(generator.choice(sentences, size=sentences), minlength=sentences)
