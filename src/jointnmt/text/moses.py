"""Moses tokenisation and detokenisation by `sacremoses`."""

from __future__ import annotations

from collections.abc import Sequence

from jointnmt.extras import extra


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
