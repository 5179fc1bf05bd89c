"""Words among pieces as a reader sees them: letters and digits that stand together, and punctuation by itself.

`web/src/tokens.ts` groups pieces likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category

from jointnmt.text.pieces import SPACE


def is_wordlike(text: str) -> bool:
    """Whether there is a letter, a digit or a mark that joins them, such as a vowel sign, in it."""
    return any(category(character)[0] in "LNM" for character in text)


def word_starts(pieces: Sequence[str], whole_words: bool) -> list[bool]:
    """Whether each piece is the first of a word or of punctuation: after a space, and where one meets the other.

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
    """Whether a piece stands inside of the word that the piece before it has begun."""
    return not piece.startswith(SPACE) and is_wordlike(piece[:1]) and is_wordlike(before[-1:])
