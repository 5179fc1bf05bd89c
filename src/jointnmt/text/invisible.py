"""Characters that nobody sees, of which text from PDFs and web pages is full."""

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
"""A table of `str.translate`. Zero width joiners are none of them: words of several scripts and emoji have them."""


def without_invisible(text: str) -> str:
    """The text without them."""
    return text if text.isascii() else text.translate(INVISIBLE)


def is_blank(text: str) -> bool:
    """Whether there is nothing to be seen in a text."""
    return not text or text.isspace() or not without_invisible(text).strip()
