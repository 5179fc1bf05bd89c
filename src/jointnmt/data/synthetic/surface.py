"""From the words of a sentence to its text: commas, the capital letter, the mark at the end."""

from collections.abc import Sequence

COMMA = ","
VOWELS = frozenset("aeiou")


def write(words: Sequence[str], end: str) -> str:
    """The text of a sentence: commas that meet become one, and none stands before the end or twice."""
    text = ""
    for word in words:
        if word != COMMA:
            text += f" {word}"
        elif not text.endswith(COMMA):
            text += COMMA
    text = text.strip().rstrip(COMMA)
    return f"{text[0].upper()}{text[1:]}{end}"


def with_articles(words: Sequence[str]) -> list[str]:
    """English words with each `a` before a vowel made `an`."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    return ["an" if word == "a" and following[:1] in VOWELS else word for word, following in pairs]
