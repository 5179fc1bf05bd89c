"""Translations found by search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jointnmt.search.scoring import LengthPenalty


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a source sentence."""

    ids: tuple[int, ...]
    """Piece ids, without begin and end marks."""
    token_log_probabilities: tuple[float, ...]
    """Log-probability of each id and of the end mark, in nats."""
    score: float
    """Score by which hypotheses are ranked; see `LengthPenalty`."""
    log_probability: float
    """Sum of the tokens' log-probabilities, in nats."""
    complete: bool = True
    """False if the sentence reached the length limit, where nothing but the end mark is allowed."""

    @classmethod
    def scored(
        cls, ids: Sequence[int], token_log_probabilities: Sequence[float], penalty: LengthPenalty, limit: int
    ) -> Hypothesis:
        """A hypothesis of these ids and log-probabilities (one more than ids, for the end mark).

        It is complete if it has fewer tokens, end mark included, than the `limit` of its sentence.
        """
        total, num_tokens = sum(token_log_probabilities), len(token_log_probabilities)
        score = penalty.score(total, num_tokens)
        return cls(tuple(ids), tuple(token_log_probabilities), score, total, num_tokens < limit)
