"""Target sentences that search has found."""

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
    """In nats: one for each id, and the end mark's."""
    score: float
    """What hypotheses are ranked by; see `LengthPenalty`."""
    log_probability: float
    """The sum of the tokens' log-probabilities, in nats."""
    complete: bool = True
    """False if the sentence reached the length limit, where nothing but the end mark is allowed."""

    @classmethod
    def scored(
        cls, ids: Sequence[int], token_log_probabilities: Sequence[float], penalty: LengthPenalty, limit: int
    ) -> Hypothesis:
        """The hypothesis with these ids and tokens' log-probabilities (one more than ids: the end mark's).

        It is complete if it has fewer tokens than the `limit` of its sentence, end mark included.
        """
        total, num_tokens = sum(token_log_probabilities), len(token_log_probabilities)
        score = penalty.score(total, num_tokens)
        return cls(tuple(ids), tuple(token_log_probabilities), score, total, num_tokens < limit)
