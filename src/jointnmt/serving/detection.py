"""Which language a text is in."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from jointnmt.text.languages import base_language

LEAST = 5.0
"""Least confidence, in percent, to be named at all; a text without letters has none above it."""
MOST_NAMED = 3
MOST_CHARACTERS = 5000
"""What is looked at of a text: more of it tells no more."""


class Detected(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float
    """In percent."""


def detect(text: str) -> list[Detected]:
    """The languages that a text may be in, likeliest first; none if nothing can be told."""
    ranked = (Detected(language, round(100 * share, 1)) for language, share in _ranked(text)[:MOST_NAMED])
    return [each for each in ranked if each.confidence >= LEAST]


def confidence(text: str, language: str) -> float:
    """How sure it is, in percent, that a text is in this language; 0 also if the language cannot be told apart."""
    return round(100 * dict(_ranked(text)).get(base_language(language), 0.0), 1)


def _ranked(text: str) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = _identifier().rank(text[:MOST_CHARACTERS])
    return found


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # reading its table takes a moment

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
