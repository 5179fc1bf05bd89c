"""A line of text into sentences, and their translations back into a line with the same white space around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jointnmt.text.invisible import is_blank
from jointnmt.text.sentences import split_sentences


@dataclass(frozen=True)
class SpacedLine:
    """A line with the white space around its sentences."""

    before: str
    sentences: tuple[str, ...]
    after: str

    @classmethod
    def of(cls, text: str, language: str, end: str = "") -> SpacedLine:
        """Split a line into sentences by the rules of a language; `end` is its line break."""
        if is_blank(text):
            return cls("", (), text + end)
        inside = text.strip()
        begin = text.index(inside)
        return cls(text[:begin], tuple(split_sentences(inside, language)), text[begin + len(inside) :] + end)

    @property
    def text(self) -> str:
        """The line, with a space between two sentences."""
        return self.filled(self.sentences, " ")

    def filled(self, translations: Sequence[str], space: str) -> str:
        """The line with its sentences replaced by translations, separated by `space`."""
        return self.before + space.join(text for text in translations if text) + self.after
