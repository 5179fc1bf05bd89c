"""Language identification."""

from __future__ import annotations

from typing import NamedTuple

from jointnmt.text.identification import ranked
from jointnmt.text.languages import base_language

LEAST = 5.0
"""Least confidence, in percent, of a language that is returned; a text without letters has none."""
MOST_NAMED = 3
MOST_CHARACTERS = 5000
"""Characters of a text that are used; more do not improve identification."""


class Detected(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float
    """Confidence, in percent."""


def detect(text: str) -> list[Detected]:
    """The languages that a text may be in, likeliest first; empty if none can be identified."""
    likeliest = ranked(text[:MOST_CHARACTERS])[:MOST_NAMED]
    found = (Detected(language, round(100 * share, 1)) for language, share in likeliest)
    return [each for each in found if each.confidence >= LEAST]


def confidence(text: str, language: str) -> float:
    """Confidence, in percent, that a text is in this language; 0 also if the language cannot be identified."""
    return round(100 * dict(ranked(text[:MOST_CHARACTERS])).get(base_language(language), 0.0), 1)
