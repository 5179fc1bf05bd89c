"""What the worker computes: sentences, and what is to be done with them.

Sentences whose `Work` is equal may be computed together, of whichever requests they are.
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
    """Its place in the request, from 0."""
    source: str
    target: str = ""
    """A target prefix, or a whole translation."""
    source_tokens: int = 1
    target_tokens: int = 1
    """Both with the end mark; of the target, only where it is scored."""
    place: LinePlace = (0, 0)
    """Samples are drawn by it."""


class Work(Protocol):
    """Something to do with sentences; equality says what may be done together."""

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """Which of the sentences to compute at once: the first one, and those that go well with it."""

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Any]:
        """A result for each sentence; called by the worker's thread alone."""


@dataclass(frozen=True)
class Translating:
    """Translate."""

    engine: Engine
    options: TranslationOptions

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """Sentences of similar lengths, within the translator's limit of cells."""
        return self.engine.plan_translations([each.source_tokens for each in sentences], self.options)

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Translation | DataError]:
        """Their translations, or an error in the place of one."""
        places, sources = [each.place for each in sentences], [each.source for each in sentences]
        return self.engine.translate_each(places, sources, [each.target for each in sentences], self.options)


@dataclass(frozen=True)
class Scoring:
    """Score given translations."""

    engine: Engine
    pieces: bool
    alternatives: int = 0

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """Sentences of similar lengths, within the translator's limits."""
        lengths = [each.source_tokens for each in sentences], [each.target_tokens for each in sentences]
        return self.engine.plan_scores(*lengths)

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[ScoredTranslation]:
        """Their scores."""
        places, sources = [each.place for each in sentences], [each.source for each in sentences]
        return self.engine.score(places, sources, [each.target for each in sentences], self.pieces, self.alternatives)


@dataclass(frozen=True, eq=False)
class Asking:
    """Answer a question about one sentence, which the question knows."""

    answer: Callable[[], Any]

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """By itself."""
        return [0]

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Any]:
        """The answer."""
        return [self.answer()]


@dataclass(frozen=True)
class Loading:
    """Read a model from disk, on the same thread as everything else that uses torch."""

    path: Path
    device: str
    precision: PrecisionChoice
    search: Mapping[str, Any]

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """By itself."""
        return [0]

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[Engine]:
        """The model."""
        return [Engine.load(self.path, self.device, self.precision, self.search)]
