"""Results of translating, scoring and aligning."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jointnmt.bounded_yaml import shorten
from jointnmt.models.gates import GateMeans, mean_over_sentences
from jointnmt.search import LengthPenalty, SamplingConfig, SearchConfig
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.special import EOS, UNK

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    tokens: tuple[str, ...]
    """Target pieces and the end mark (for a split line: those of each of its sentences)."""
    token_log_probabilities: tuple[float, ...]
    """Log-probability of each token, in nats."""
    score: float
    """Score by which candidates are ranked; see `LengthPenalty`."""
    complete: bool
    """False if the translation was cut at the maximum length."""
    alignment: Float[Tensor, "T S"] | None = None
    """Weight of each source token for each target token, if asked for; a row sums to 1. On the CPU."""
    gates: GateMeans | None = None
    """Mean gates of lexical shortcuts, if asked for (for a split line: over its sentences)."""

    @property
    def log_probability(self) -> float:
        """The sum of the tokens' log-probabilities, in nats."""
        return float(sum(self.token_log_probabilities))

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        values: dict[str, Any] = {
            "translation": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "complete": self.complete,
            "tokens": list(self.tokens),
            "token_log_probabilities": list(self.token_log_probabilities),
        }
        if self.alignment is not None:
            values["alignment"] = [[round(weight, 6) for weight in row] for row in self.alignment.tolist()]
        if self.gates is not None:
            values["gates"] = self.gates
        return values

    @classmethod
    def joined(cls, sentences: Sequence[Candidate], space: str, penalty: LengthPenalty) -> Candidate:
        """The translation of a split line, joined from translations of its sentences."""
        if len(sentences) == 1:
            return sentences[0]
        tokens = tuple(token for each in sentences for token in each.tokens)
        log_probabilities = tuple(value for each in sentences for value in each.token_log_probabilities)
        alignments = [each.alignment for each in sentences if each.alignment is not None]
        gates = [each.gates for each in sentences if each.gates is not None]
        return cls(
            text=space.join(each.text for each in sentences if each.text),
            tokens=tokens,
            token_log_probabilities=log_probabilities,
            score=penalty.score(sum(log_probabilities), len(tokens)),
            complete=all(each.complete for each in sentences),
            # no weight between different sentences of a line
            alignment=torch.block_diag(*alignments) if alignments else None,
            gates=mean_over_sentences(gates) if gates else None,
        )


NOTHING = Candidate(text="", tokens=(), token_log_probabilities=(), score=0.0, complete=True)
"""The translation of an empty line, of probability 1."""


@dataclass(frozen=True)
class Translation:
    """A line and its translations."""

    source: str
    source_tokens: tuple[str, ...] = ()
    """Source pieces and the end mark (for a split line: those of each of its sentences)."""
    candidates: tuple[Candidate, ...] = ()
    """Translations, best first, or samples in the order of drawing; empty for an empty line."""
    error: str | None = None
    """Why the line was skipped, if it was; see `TranslationOptions.on_invalid`."""

    @classmethod
    def joined(
        cls, source: str, sentences: Sequence[Translation], space: str, search: SearchConfig | SamplingConfig
    ) -> Translation:
        """The translation of a line, joined from those of its sentences: the n-th best from their n-th best."""
        found = [each for each in sentences if each.candidates]
        nth_best = zip(*(each.candidates for each in found), strict=False)
        candidates = [Candidate.joined(nth, space, search.penalty) for nth in nth_best]
        if not isinstance(search, SamplingConfig):  # scores depend on length: the order may change
            candidates.sort(key=lambda each: -each.score)
        return cls(source, tuple(token for each in found for token in each.source_tokens), tuple(candidates))

    @property
    def text(self) -> str:
        """The best translation, or the first sample; empty for an empty line."""
        return self.candidates[0].text if self.candidates else ""

    def plain(self, with_n_best: bool = False) -> dict[str, Any]:
        """The fields as JSON-compatible values: the best candidate and, if asked for, all of them under `n_best`."""
        best = (self.candidates[0] if self.candidates else NOTHING).plain()
        values = {"source": self.source, **best, "source_tokens": list(self.source_tokens)}
        if with_n_best:
            values["n_best"] = [candidate.plain() for candidate in self.candidates]
        if self.error is not None:
            values["error"] = self.error
        return values


@dataclass
class Counts:
    """Counts over many translations that a user should be warned of."""

    total: int = 0
    cut: int = 0
    """Translations that were cut at the maximum length."""
    skipped: int = 0
    translated: int = 0
    """Lines that were neither skipped nor empty."""
    empty: int = 0
    """Translated lines with an empty translation that was not cut."""
    several: int = 0
    """Lines of several sentences that were translated as one."""
    unreadable: int = 0
    """Translated lines with a character or word that the model has no piece for."""
    first_error: str | None = None
    first_unreadable: str = ""

    def add(self, translation: Translation) -> None:
        """Count one more."""
        self.total += 1
        self.cut += bool(translation.candidates) and not translation.candidates[0].complete
        self.skipped += translation.error is not None
        if translation.candidates:
            self.translated += 1
            self.empty += translation.candidates[0].complete and not translation.text.strip()
            if UNK in translation.source_tokens:
                self.unreadable += 1
                self.first_unreadable = self.first_unreadable or translation.source
        self.first_error = self.first_error or translation.error

    def warn(self) -> None:
        """Log warnings, if there are any."""
        if self.cut:
            logger.warning(
                "%d of %d translations reached the maximum length and were cut. If they look unfinished, raise the "
                "maximum length; if they repeat themselves, train the model for longer.",
                self.cut,
                self.total,
            )
        if 2 * self.empty > self.translated:
            logger.warning(
                "%d of %d translations are empty: the model is poorly trained, or was trained on other text than "
                "this. See the scores in its training log or model card.",
                self.empty,
                self.translated,
            )
        if self.unreadable:
            logger.warning(
                "%d of %d lines have characters or words that the model has no piece for, and cannot read. The first: "
                "%s",
                self.unreadable,
                self.total,
                shorten(self.first_unreadable),
            )
        if 10 * self.several > self.total:  # a few are in any text of single sentences
            logger.warning(
                "%d of %d lines hold several sentences, and were translated as one. A model that was trained on single "
                "sentences is better at each by itself (split='always'; --split always).",
                self.several,
                self.total,
            )
        if self.skipped:
            logger.warning(
                "%d of %d lines could not be translated and were left empty. The first: %s",
                self.skipped,
                self.total,
                self.first_error,
            )


@dataclass(frozen=True)
class Aligned:
    """A pair of lines and its soft alignment."""

    source_tokens: tuple[str, ...]
    """Source pieces and the end mark; empty for an empty line."""
    target_tokens: tuple[str, ...]
    alignment: Float[Tensor, "T S"] | None
    """Weight of each source token for each target token; a row sums to 1. On the CPU; None for an empty line."""


class NextPiece(NamedTuple):
    """A piece that might stand at a position."""

    piece: str
    log_probability: float
    """Log-probability given the translation before it, in nats."""


@dataclass(frozen=True)
class ScoredTranslation:
    """A line with a given translation and its log-probability."""

    source: str
    target: str
    tokens: tuple[str, ...] = ()
    """Target pieces and the end mark; empty if both lines are empty (probability 1)."""
    token_log_probabilities: tuple[float, ...] = ()
    """Log-probability of each token, in nats."""
    score: float = 0.0
    """Score by which search ranks; see `LengthPenalty`."""
    first_choices: tuple[bool, ...] = ()
    """Whether each token is the most probable one at its position."""
    alternatives: tuple[tuple[NextPiece, ...], ...] = ()
    """For each token, the likeliest pieces at its position, best first; empty unless asked for."""

    @property
    def log_probability(self) -> float:
        """The sum of the tokens' log-probabilities."""
        return float(sum(self.token_log_probabilities))

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        values: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "log_probability": self.log_probability,
            "score": self.score,
            "tokens": list(self.tokens),
            "token_log_probabilities": list(self.token_log_probabilities),
            "first_choices": list(self.first_choices),
        }
        if self.alternatives:
            values["alternatives"] = [[each._asdict() for each in choices] for choices in self.alternatives]
        return values


def records(translations: Iterable[Translation]) -> list[dict[str, Any]]:
    """A row for each candidate: `pandas.DataFrame(records(translator.translations(texts)))`.

    Columns: `line` and `rank`, from 1; `source`, `translation`; `score`, `log_probability`, `complete`; `num_tokens`,
    end mark included. An empty line has one row with an empty translation.
    """
    return [
        {
            "line": line,
            "rank": rank,
            "source": translation.source,
            "translation": each.text,
            "score": each.score,
            "log_probability": each.log_probability,
            "complete": each.complete,
            "num_tokens": len(each.tokens),
        }
        for line, translation in enumerate(translations, start=1)
        for rank, each in enumerate(translation.candidates or (NOTHING,), start=1)
    ]


def with_end_mark(segmenter: Segmenter, ids: Sequence[int]) -> tuple[str, ...]:
    """The pieces of a sentence and the end mark."""
    return (*map(segmenter.piece, ids), EOS)
