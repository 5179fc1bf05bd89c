"""Words among pieces as a reader sees them: contiguous letters and digits, and separate punctuation.

`web/src/tokens.ts` groups pieces in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category

from jointnmt.text.pieces import SPACE


def is_wordlike(text: str) -> bool:
    """Whether a text contains a letter, a digit or a combining mark, such as a vowel sign."""
    return any(category(character)[0] in "LNM" for character in text)


def word_starts(pieces: Sequence[str], whole_words: bool) -> list[bool]:
    """Whether each piece begins a word or punctuation: after a space, and where words and punctuation meet.

    With `whole_words`, every piece is a word.
    """
    starts, before = list[bool](), ""
    for piece in pieces:
        content = piece.replace(SPACE, "")
        meets = bool(before) and is_wordlike(content) != is_wordlike(before)
        starts.append(whole_words or not starts or piece.startswith(SPACE) or meets)
        before = content
    return starts


def goes_on(piece: str, before: str) -> bool:
    """Whether a piece continues the word of the piece before it."""
    return not piece.startswith(SPACE) and is_wordlike(piece[:1]) and is_wordlike(before[-1:])
