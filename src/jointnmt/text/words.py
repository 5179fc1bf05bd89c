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
        content, known = piece.replace(SPACE, ""), before.replace(SPACE, "")
        meets = bool(known) and is_wordlike(content) != is_wordlike(known)
        starts.append(whole_words or not starts or follows_space(piece, before) or meets)
        before = piece
    return starts


def follows_space(piece: str, before: str) -> bool:
    """Whether there is a space between a piece and the one before it: each begins a word, or may end one."""
    return piece.startswith(SPACE) or (before.endswith(SPACE) and before != SPACE)


def goes_on(piece: str, before: str) -> bool:
    """Whether a piece continues the word of the piece before it."""
    return not follows_space(piece, before) and is_wordlike(piece[:1]) and is_wordlike(before[-1:])
