"""Likelihood of given translations under a run: negative log-probability per piece, and perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LARGEST_NLL = 700.0
"""Largest nats per piece for `exp`, which overflows from about 710 on."""


def perplexity(nll: float) -> float:
    """exp of `nll`, in nats per piece; finite however unlikely the pieces are."""
    return math.exp(min(nll, LARGEST_NLL))


@dataclass(frozen=True)
class Likelihood:
    """Likelihood of N sentences under a run, teacher-forced."""

    log_probabilities: Sequence[float]
    """Natural log-probability of each sentence, `[N]`, summed over its pieces, end mark included."""
    pieces: Sequence[int]
    """Pieces of each sentence, `[N]`, end mark included."""
    segmentation: str
    """Fingerprint of the target segmentation; only likelihoods with equal ones can be compared."""

    @property
    def nll(self) -> float:
        """Mean negative log-probability of a piece, in nats; 0 without sentences."""
        return -math.fsum(self.log_probabilities) / max(sum(self.pieces), 1)

    @property
    def perplexity(self) -> float:
        """exp of `nll`."""
        return perplexity(self.nll)

    def followed_by(self, other: Likelihood) -> Likelihood:
        """The likelihood of these sentences and others under the same run."""
        log_probabilities = [*self.log_probabilities, *other.log_probabilities]
        return Likelihood(log_probabilities, [*self.pieces, *other.pieces], self.segmentation)

    def of(self, rows: Iterable[int]) -> Likelihood:
        """The likelihood of some of the sentences."""
        chosen = list(rows)
        log_probabilities = [self.log_probabilities[row] for row in chosen]
        return Likelihood(log_probabilities, [self.pieces[row] for row in chosen], self.segmentation)
