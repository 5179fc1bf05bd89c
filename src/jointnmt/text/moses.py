"""Moses tokenisation, detokenisation and normalisation of punctuation, by `sacremoses`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jointnmt.extras import extra

LONG_ELLIPSIS = re.compile(r"(\.{64,})")
"""Runs of full stops that are kept from the normaliser, whose time grows with the square of their length."""


class Moses:
    """Tokenises and detokenises text of one language, by the rules of the Moses scripts and without their escapes.

    Languages without rules use English abbreviations, with apostrophes as separate tokens. Detokenisation restores most
    texts, but not, for example, `4' long` or a space before an ellipsis.
    """

    def __init__(self, language: str) -> None:
        with extra("moses"):
            from sacremoses import MosesDetokenizer, MosesTokenizer
        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)

    def tokenize(self, text: str) -> str:
        """Tokens with single spaces between them."""
        return str(self._tokenizer.tokenize(text, escape=False, return_str=True))

    def detokenize(self, tokens: Sequence[str]) -> str:
        """Running text."""
        return str(self._detokenizer.detokenize(list(tokens), unescape=False, return_str=True))


class PunctuationNormalizer:
    """One form of each quotation mark, dash, ellipsis and space, by the rules of the Moses script for a language."""

    def __init__(self, language: str) -> None:
        with extra("moses"):
            from sacremoses import MosesPunctNormalizer
        self._normalizer = MosesPunctNormalizer(lang=language)

    def normalize(self, text: str) -> str:
        """The text with its punctuation normalised, without white space around it."""
        parts = LONG_ELLIPSIS.split(text)
        parts[::2] = map(self._normalized, parts[::2])
        return "".join(parts).strip()

    def _normalized(self, part: str) -> str:
        """A part of a text, with the spaces at its ends, which separate it from its neighbours."""
        before, after = (" " if end.isspace() else "" for end in (part[:1], part[-1:]))
        return f"{before}{self._normalizer.normalize(part)}{after}"
