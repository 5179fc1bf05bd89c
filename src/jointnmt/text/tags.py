"""Tags: single pieces before a source that mark an origin or a language (Johnson et al. 2017).

Only the first word of a source is read as a tag, and only by a model that was trained with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jointnmt.text.special import SPECIAL_PIECES


def check_tag(tag: str) -> None:
    """Refuse a tag that could not be distinguished from other pieces.

    Raises:
        ValueError: if it is not one word in angle brackets, or if it is a special piece.
    """
    if not re.fullmatch(r"<[^\s<>▁]{1,50}>", tag) or tag in SPECIAL_PIECES:
        raise ValueError(
            f"a tag should be a word in angle brackets, such as <2en>, not a special piece (given: {tag!r})"
        )


def split_tag(text: str, tags: Sequence[str]) -> tuple[str, str]:
    """The tag at the beginning of a text, or an empty string, and the rest."""
    first, rest = (*text.split(maxsplit=1), "", "")[:2]
    return (first, rest) if first in tags else ("", text)
