"""Characters that text should not have: invisible ones, as in PDFs and web pages, and halves of surrogate pairs."""

from __future__ import annotations

INVISIBLE = dict.fromkeys(
    (
        0x00AD,  # soft hyphen
        0x200B,  # zero width space
        0x200E, 0x200F,  # marks of direction
        *range(0x202A, 0x202F),  # embeddings and overrides of direction
        0x2060,  # word joiner
        *range(0x2066, 0x206A),  # isolates of direction
        0xFEFF,  # byte order mark, where files were joined
    )
)  # fmt: skip
"""Table for `str.translate`. Zero width joiners are kept, as words of several scripts and emoji need them."""


def without_invisible(text: str) -> str:
    """The text without invisible characters."""
    return text if text.isascii() else text.translate(INVISIBLE)


def is_blank(text: str) -> bool:
    """Whether a text has only white space and invisible characters."""
    return not text or text.isspace() or not without_invisible(text).strip()


def has_surrogate(text: str) -> bool:
    """Whether text has half of a surrogate pair, as from JSON escapes, so that it is not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
