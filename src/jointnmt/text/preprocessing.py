"""Preprocessing of text before segmentation, and its inverse."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from jointnmt.text.config import SegmentationConfig
from jointnmt.text.invisible import without_invisible
from jointnmt.text.moses import Moses, PunctuationNormalizer, Truecaser
from jointnmt.text.pieces import SPACE


@dataclass(frozen=True)
class TextPreprocessor:
    """The preprocessing steps of one side."""

    moses: Moses | None = None
    normalizer: PunctuationNormalizer | None = None
    truecaser: Truecaser | None = None
    language: str = ""
    """Language of the rules."""

    @classmethod
    def of(cls, config: SegmentationConfig, language: str, truecaser: Truecaser | None = None) -> Self:
        """The configured preprocessor for a language; without a truecaser, the case of words is kept."""
        return cls(
            Moses(language) if config.moses else None,
            PunctuationNormalizer(language) if config.normalize_punctuation else None,
            truecaser,
            language,
        )

    def apply(self, text: str) -> str:
        """Text without invisible characters, with collapsed white space.

        If configured, with normalised punctuation, Moses tokens and true case.
        """
        text = without_invisible(text)
        if self.normalizer:
            text = self.normalizer.normalize(text)
        text = " ".join(text.split())
        if self.moses:
            text = self.moses.tokenize(text)
        return self.truecaser.truecase(text) if self.truecaser else text

    def undo(self, words: Sequence[str]) -> str:
        """Running text from words; truecasing and tokenisation are undone, normalisation of punctuation is not."""
        if self.truecaser:
            words = self.truecaser.detruecase(words)
        return self.moses.detokenize(words) if self.moses else " ".join(words)


def divided(word: str, config: SegmentationConfig, ends_words: bool = False) -> list[str]:
    """A word as looked up: normalised, with its space mark and, if configured, punctuation and digits as parts.

    Every step depends on the word alone, so results are those within a text. With `ends_words`, the space mark is at
    the end.
    """
    word = unicodedata.normalize("NFC", word).replace(SPACE, "_")
    if config.lowercase:
        word = "".join(letter.lower() for letter in word)  # one by one, so that a final sigma is not special
    if config.kind == "word":
        return [word]
    if ends_words:
        return [word + SPACE]
    if not (config.split_punctuation or config.split_digits):
        return [SPACE + word]

    def is_apart(letter: str) -> bool:
        return (config.split_punctuation and _is_punctuation(letter)) or (config.split_digits and letter.isdecimal())

    runs = ((apart, "".join(run)) for apart, run in groupby(SPACE + word, is_apart))
    return [part for apart, run in runs for part in (run if apart else [run])]


def _is_punctuation(letter: str) -> bool:
    """Whether a character is Unicode punctuation or an ASCII sign such as `+`."""
    return letter in string.punctuation or unicodedata.category(letter).startswith("P")
