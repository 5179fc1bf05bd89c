"""Texts and HTML as lists of sentences, and their reconstruction from translations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch

from jointnmt.serving.engine import NOTHING, Candidate
from jointnmt.serving.lines import SpacedLine
from jointnmt.serving.markup import Marked, Part, escaped, read_markup
from jointnmt.serving.placing import joined, place_tags
from jointnmt.text.languages import space_of

_BREAK = re.compile(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")


class Piece(NamedTuple):
    """A sentence of a document."""

    text: str
    needs_alignment: bool = False
    """Whether its translation needs an alignment to be put back."""


class Rendered(NamedTuple):
    """A sentence's translation."""

    source_tokens: Sequence[str]
    candidate: Candidate


EMPTY = replace(NOTHING, alignment=torch.zeros(0, 0))
"""The translation of a sentence without a piece, such as a control character that Moses tokenisation removes."""


@dataclass(frozen=True)
class PlainText:
    """Lines of text, each with its line break."""

    lines: tuple[SpacedLine, ...]

    @classmethod
    def of(cls, text: str, language: str) -> PlainText:
        """Read a text in this language."""
        parts = [*_BREAK.split(text), ""]
        return cls(tuple(SpacedLine.of(line, language, end) for line, end in zip(parts[::2], parts[1::2], strict=True)))

    @cached_property
    def pieces(self) -> list[Piece]:
        """All sentences, in order."""
        return [Piece(sentence) for line in self.lines for sentence in line.sentences]

    def filled(self, translations: Sequence[Rendered], language: str) -> str:
        """The text with its sentences replaced by translations."""
        remaining, space = (each.candidate.text for each in translations), space_of(language)
        return "".join(line.filled([next(remaining) for _ in line.sentences], space) for line in self.lines)


@dataclass(frozen=True)
class Html:
    """An HTML document or a fragment of one."""

    parts: tuple[Part, ...]
    language: str
    """Language of its text."""

    @classmethod
    def of(cls, source: str, language: str) -> Html:
        """Read HTML with text in this language; invalid markup is kept."""
        return cls(tuple(read_markup(source, language)), language)

    @property
    def segments(self) -> list[str]:
        """The texts between block-level tags."""
        return [part.text for part in self.parts if not isinstance(part, str)]

    @cached_property
    def pieces(self) -> list[Piece]:
        """All sentences, in order."""
        return list(self._pieces())

    def filled(self, translations: Sequence[Rendered], language: str) -> str:
        """The HTML with its sentences replaced by translations, and all of its tags."""
        remaining, space = iter(translations), space_of(language)
        return "".join(self._filled(part, remaining, space) for part in self.parts)

    def _pieces(self) -> Iterator[Piece]:
        for part in self.parts:
            if isinstance(part, SpacedLine):
                yield from map(Piece, part.sentences)
            elif isinstance(part, Marked):
                yield from (Piece(sentence.text, True) for sentence in part.sentences(self.language))

    def _filled(self, part: Part, translations: Iterator[Rendered], space: str) -> str:
        if isinstance(part, str):
            return part
        if isinstance(part, SpacedLine):
            return escaped(part.filled([next(translations).candidate.text for _ in part.sentences], space))
        placed = []
        for sentence in part.sentences(self.language):
            tokens, candidate = next(translations)
            assert candidate.alignment is not None, "a marked sentence is translated with alignments"
            placed.append(place_tags(sentence, candidate.text, tokens, candidate.tokens, candidate.alignment.numpy()))
        text = part.text
        before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        return escaped(before) + joined(placed, space) + escaped(after)


Document = PlainText | Html
