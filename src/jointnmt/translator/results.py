"""What translating and scoring give back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from jointnmt.models.gates import GateMeans, mean_over_sentences
from jointnmt.search import LengthPenalty


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    tokens: tuple[str, ...]
    """Target pieces and the end mark (of a line that was split: of each of its sentences)."""
    token_log_probabilities: tuple[float, ...]
    score: float
    """What candidates are ranked by; see `LengthPenalty`."""
    complete: bool
    """False if the translation reached the greatest length allowed, and was ended there."""
    alignment: Float[np.ndarray, "T S"] | None = None
    """How much each source token contributes to each target token, if that was asked for; a row sums to 1."""
    gates: GateMeans | None = None
    """The mean gates of lexical shortcuts, if they were asked for (of a line that was split: over its sentences)."""

    @property
    def log_probability(self) -> float:
        """The sum of the tokens' log-probabilities."""
        return float(sum(self.token_log_probabilities))

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        values: dict[str, Any] = {
            "translation": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "complete": self.complete,
            "tokens": list(self.tokens),
            "token_log_probabilities": list(self.token_log_probabilities),
        }
        if self.alignment is not None:
            values["alignment"] = self.alignment.astype(float).round(6).tolist()
        if self.gates is not None:
            values["gates"] = self.gates
        return values

    @classmethod
    def joined(cls, parts: Sequence[Candidate], space: str, penalty: LengthPenalty) -> Candidate:
        """The translation of a line of several sentences, out of a translation of each."""
        if len(parts) == 1:
            return parts[0]
        tokens = tuple(token for part in parts for token in part.tokens)
        log_probabilities = tuple(value for part in parts for value in part.token_log_probabilities)
        alignments = [part.alignment for part in parts if part.alignment is not None]
        gates = [part.gates for part in parts if part.gates is not None]
        return cls(
            text=space.join(part.text for part in parts if part.text),
            tokens=tokens,
            token_log_probabilities=log_probabilities,
            score=penalty.score(sum(log_probabilities), len(tokens)),
            complete=all(part.complete for part in parts),
            alignment=_block_diagonal(alignments) if alignments else None,
            gates=mean_over_sentences(gates) if gates else None,
        )


NOTHING = Candidate(text="", tokens=(), token_log_probabilities=(), score=0.0, complete=True)
"""The translation of an empty line, which is certain."""


@dataclass(frozen=True)
class Translation:
    """A line and its translations."""

    source: str
    source_tokens: tuple[str, ...] = ()
    """Source pieces and the end mark (of a line that was split: of each of its sentences)."""
    candidates: tuple[Candidate, ...] = ()
    """Best first, or samples in the order in which they were drawn. None for an empty line."""

    @property
    def text(self) -> str:
        """The best translation, or the first sample; empty for an empty line."""
        return self.candidates[0].text if self.candidates else ""

    def plain(self, with_n_best: bool = False) -> dict[str, Any]:
        """As JSON-compatible values: the best candidate, and if wanted all of them under `n_best`."""
        best = (self.candidates[0] if self.candidates else NOTHING).plain()
        values = {"source": self.source, **best, "source_tokens": list(self.source_tokens)}
        if with_n_best:
            values["n_best"] = [candidate.plain() for candidate in self.candidates]
        return values


@dataclass(frozen=True)
class Aligned:
    """A pair of lines and how they go together."""

    source_tokens: tuple[str, ...]
    """Source pieces and the end mark; none of an empty line."""
    target_tokens: tuple[str, ...]
    alignment: Float[np.ndarray, "T S"] | None
    """How much each source token contributes to each target token; a row sums to 1. None for an empty line."""


@dataclass(frozen=True)
class ScoredTranslation:
    """A line, a given translation of it, and how probable the model finds that."""

    source: str
    target: str
    tokens: tuple[str, ...] = ()
    """Target pieces and the end mark. None if both lines are empty: an empty line's translation is certain."""
    token_log_probabilities: tuple[float, ...] = ()
    score: float = 0.0
    """As search ranks translations; see `LengthPenalty`."""
    first_choices: tuple[bool, ...] = ()
    """Whether each token is the one that the model finds most probable there."""

    @property
    def log_probability(self) -> float:
        """The sum of the tokens' log-probabilities."""
        return float(sum(self.token_log_probabilities))

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {
            "source": self.source,
            "target": self.target,
            "log_probability": self.log_probability,
            "score": self.score,
            "tokens": list(self.tokens),
            "token_log_probabilities": list(self.token_log_probabilities),
            "first_choices": list(self.first_choices),
        }


def _block_diagonal(blocks: Sequence[Float[np.ndarray, "_ _"]]) -> Float[np.ndarray, "T S"]:
    """The blocks along the diagonal of a matrix of zeros: the sentences of a line do not see each other."""
    matrix = np.zeros(np.sum([block.shape for block in blocks], axis=0), dtype=np.float32)
    row = column = 0
    for block in blocks:
        matrix[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return matrix
