"""Text with any layout into sentences, and their translations back into the same layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jointnmt.text.invisible import is_blank
from jointnmt.text.languages import space_of
from jointnmt.text.sentences import split_sentences

_BREAK = re.compile(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")


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


@dataclass(frozen=True)
class Paragraphs:
    """A text: its lines, and the line breaks between them."""

    lines: tuple[SpacedLine, ...]

    @classmethod
    def of(cls, text: str, language: str) -> Paragraphs:
        """Split a text into lines, and these into sentences by the rules of a language."""
        parts = [*_BREAK.split(text), ""]
        return cls(tuple(SpacedLine.of(line, language, end) for line, end in zip(parts[::2], parts[1::2], strict=True)))

    @property
    def sentences(self) -> list[str]:
        """All sentences, in order."""
        return [sentence for line in self.lines for sentence in line.sentences]

    def filled(self, translations: Sequence[str], language: str) -> str:
        """The text with its sentences replaced by translations into `language`."""
        remaining, space = iter(translations), space_of(language)
        return "".join(line.filled([next(remaining) for _ in line.sentences], space) for line in self.lines)
