"""Which language a text is in."""

from __future__ import annotations

from typing import NamedTuple

from jointnmt.text.identification import ranked
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
    likeliest = ranked(text[:MOST_CHARACTERS])[:MOST_NAMED]
    found = (Detected(language, round(100 * share, 1)) for language, share in likeliest)
    return [each for each in found if each.confidence >= LEAST]


def confidence(text: str, language: str) -> float:
    """How sure it is, in percent, that a text is in this language; 0 also if the language cannot be told apart."""
    return round(100 * dict(ranked(text[:MOST_CHARACTERS])).get(base_language(language), 0.0), 1)
