"""Work for the worker: sentences, and what is computed from them.

Sentences with equal `Work` may be computed together, even from different requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jointnmt.errors import DataError
from jointnmt.serving.engine import (
    Engine,
    LinePlace,
    PrecisionChoice,
    ScoredTranslation,
    Translation,
    TranslationOptions,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One text to work on."""

    number: int
    """Index in the request, from 0."""
    source: str
    target: str = ""
    """A target prefix, or a whole translation."""
    source_tokens: int = 1
    target_tokens: int = 1
    """Number of tokens, end mark included, as `source_tokens`; only counted if the target is scored."""
    place: LinePlace = (0, 0)
    """Place in the request, on which samples depend."""


class Work(Protocol):
    """A computation on sentences; equal ones may be computed together."""

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """Indices of the sentences to compute at once: the first one, and those that fit in its batch."""

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Any]:
        """A result for each sentence; called by the worker's thread alone."""


@dataclass(frozen=True)
class Translating:
    """Translation of sentences."""

    engine: Engine
    options: TranslationOptions

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """Sentences of similar lengths, within the translator's limit of cells."""
        return self.engine.plan_translations([each.source_tokens for each in sentences], self.options)

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Translation | DataError]:
        """The translations, or an error in place of one."""
        places, sources = [each.place for each in sentences], [each.source for each in sentences]
        return self.engine.translate_each(places, sources, [each.target for each in sentences], self.options)


@dataclass(frozen=True)
class Scoring:
    """Scoring of given translations."""

    engine: Engine
    pieces: bool
    alternatives: int = 0

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """Sentences of similar lengths, within the translator's limits."""
        lengths = [each.source_tokens for each in sentences], [each.target_tokens for each in sentences]
        return self.engine.plan_scores(*lengths)

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[ScoredTranslation]:
        """The scores of the sentences."""
        places, sources = [each.place for each in sentences], [each.source for each in sentences]
        return self.engine.score(places, sources, [each.target for each in sentences], self.pieces, self.alternatives)


@dataclass(frozen=True, eq=False)
class Asking:
    """A question about one sentence, which `answer` already knows."""

    answer: Callable[[], Any]

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """By itself."""
        return [0]

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Any]:
        """The answer."""
        return [self.answer()]


@dataclass(frozen=True)
class Loading:
    """Loading of a model from disk, on the same thread as everything else that uses torch."""

    path: Path
    device: str
    precision: PrecisionChoice
    search: Mapping[str, Any]

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """By itself."""
        return [0]

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Engine]:
        """The loaded model."""
        return [Engine.load(self.path, self.device, self.precision, self.search)]
