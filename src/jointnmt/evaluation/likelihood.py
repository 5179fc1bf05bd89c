"""How probable a run finds given translations: their negative log-probability a piece, and their perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LARGEST_NLL = 700.0
"""Nats a piece; from about 710 on, exp is no finite number."""


def perplexity(nll: float) -> float:
    """exp of `nll`, nats a piece; a number that a float can hold, however unlikely the pieces are."""
    return math.exp(min(nll, LARGEST_NLL))


@dataclass(frozen=True)
class Likelihood:
    """Of N sentences under a run, teacher-forced."""

    log_probabilities: Sequence[float]
    """N of them, natural, each summed over the pieces of a sentence, end mark included."""
    pieces: Sequence[int]
    """N counts, end marks included."""
    segmentation: str
    """The fingerprint of what made the pieces: likelihoods compare only between equal ones."""

    @property
    def nll(self) -> float:
        """Mean negative log-probability of a piece, in nats; 0 of no sentences."""
        return -math.fsum(self.log_probabilities) / max(sum(self.pieces), 1)

    @property
    def perplexity(self) -> float:
        """exp of `nll`."""
        return perplexity(self.nll)

    def followed_by(self, other: Likelihood) -> Likelihood:
        """Of these sentences and of others, under the same run."""
        log_probabilities = [*self.log_probabilities, *other.log_probabilities]
        return Likelihood(log_probabilities, [*self.pieces, *other.pieces], self.segmentation)

    def of(self, rows: Iterable[int]) -> Likelihood:
        """That of some of the sentences."""
        chosen = list(rows)
        log_probabilities = [self.log_probabilities[row] for row in chosen]
        return Likelihood(log_probabilities, [self.pieces[row] for row in chosen], self.segmentation)
