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
    """One for each id, and the end mark's."""
    score: float
    """What hypotheses are ranked by; see `LengthPenalty`."""
    log_probability: float
    """The sum of the tokens' log-probabilities."""
    complete: bool = True
    """False if the sentence reached the length limit, where nothing but the end mark is allowed."""

    @classmethod
    def scored(
        cls, ids: Sequence[int], token_log_probabilities: Sequence[float], penalty: LengthPenalty, complete: bool = True
    ) -> Hypothesis:
        """The hypothesis with these ids and tokens' log-probabilities (one more than ids: the end mark's)."""
        total = sum(token_log_probabilities)
        score = penalty.score(total, len(token_log_probabilities))
        return cls(tuple(ids), tuple(token_log_probabilities), score, total, complete)
