"""Are two systems different, or is it chance? Paired bootstrap resampling (Koehn, 2004) by sacrebleu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.significance import PairedTest

from jointnmt.evaluation.scores import Measure, check_parallel


@dataclass(frozen=True)
class Resampled:
    """A system's score by one metric, and what resampling the test set says about it."""

    system: str
    score: float
    mean: float
    """Mean score over the resampled test sets."""
    half_width: float
    """Half the width of the 95% interval around `mean`."""
    p_value: float | None
    """Probability of a difference from the first system as large as this by chance; None for the first system."""


@dataclass(frozen=True)
class Comparison:
    """All systems by one metric, the first of them being what the others are compared with."""

    metric: str
    systems: tuple[Resampled, ...]
    signature: str
    """sacrebleu's signature with the number of resamplings (`bs`) and the seed (`seed`)."""


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    measures: Mapping[str, Measure],
    samples: int = 1000,
) -> list[Comparison]:
    """Compare each system with the first one, by each of the `measures`, on `samples` resampled test sets.

    The seed is sacrebleu's: 12345, or the environment variable SACREBLEU_SEED. It departs from sacrebleu in one
    respect: systems of equal score get a p-value of 1, where sacrebleu gives a system compared with itself the
    smallest p-value there is.

    Raises:
        DataError: if a system has not as many sentences as there are references, or there are none.
        ValueError: if there are fewer than two systems.
    """
    if len(systems) < 2:
        raise ValueError("a comparison takes two or more systems")
    for name, hypotheses in systems.items():
        check_parallel(hypotheses, references, name)
    return [_compare(systems, references, key, measure, samples) for key, measure in measures.items()]


def _compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], key: str, measure: Measure, samples: int
) -> Comparison:
    named: list[tuple[str, Sequence[str]]] = [(name, measure.prepare(texts)) for name, texts in systems.items()]
    metrics = {key: measure.metric}
    test = PairedTest(named, metrics, [measure.prepare(references)], test_type="bs", n_samples=samples)
    signatures, table = test()
    ((title, signature),) = signatures.items()
    results: list[Any] = table[title]
    baseline = results[0].score
    p_values = [1.0 if result.score == baseline else result.p_value for result in results[1:]]
    resampled = (
        Resampled(name, result.score, float(result.mean), float(result.ci), p_value)
        for name, result, p_value in zip(systems, results, [None, *p_values], strict=True)
    )
    return Comparison(key, tuple(resampled), measure.describe(signature))
