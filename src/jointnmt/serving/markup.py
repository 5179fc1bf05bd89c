"""HTML into sentences, and back with all of its tags: reading.

The text between two block-level tags is a segment. Everything that is not text, or must not be translated, is kept
verbatim. Inline tags inside a segment go with the words they enclose (`jointnmt.serving.placing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape

from jointnmt.serving.html_events import Event, is_inline, read_events
from jointnmt.serving.kept import Kept
from jointnmt.serving.lines import SpacedLine
from jointnmt.text.invisible import is_blank

DEEPEST = 64
"""Most nested inline elements, and most tags without a counterpart, of a segment that is translated as a whole."""


@dataclass(eq=False)
class Element:
    """An inline element, with its original tags."""

    opening: str
    closing: str = ""


Stack = tuple[Element, ...]
"""The inline elements around a place in a segment, outermost first."""


@dataclass(frozen=True)
class Atom:
    """Something inline without text to translate: an image, a comment, an empty element, one that is kept verbatim."""

    position: int
    """Position in the segment's text before which it stands."""
    raw: str
    stack: Stack
    is_text: bool = False
    """Whether it reads like a word, and so keeps the white space around it."""
    is_end: bool = False
    """Whether it is a single end tag, which stays with the word before it."""
    is_single: bool = False
    """Whether it is a start or end tag whose counterpart is in another segment."""
    space_before: bool = False
    space_after: bool = False


@dataclass(frozen=True)
class Marked:
    """A segment with inline tags inside."""

    text: str
    stacks: tuple[Stack, ...]
    """Stack of each character."""
    atoms: tuple[Atom, ...]

    def sentences(self, language: str) -> Iterator[Marked]:
        """Its sentences, without the white space between them."""
        begin, lines, rest = 0, SpacedLine.of(self.text, language).sentences, deque(self.atoms)  # which are in order
        for number, sentence in enumerate(lines, start=1):
            start = self.text.index(sentence, begin)
            end = start + len(sentence)
            until = len(self.text) + 1 if number == len(lines) else end
            moved = []
            while rest and rest[0].position < until:
                atom = rest.popleft()
                moved.append(replace(atom, position=max(0, atom.position - start)))
            yield Marked(sentence, self.stacks[start:end], tuple(moved))
            begin = until


Part = str | SpacedLine | Marked
"""Part of a document: kept verbatim, text without tags inside, or text with tags inside."""


def read_markup(source: str, language: str) -> list[Part]:
    """The parts of an HTML document or fragment with text in this language, in order."""
    return _Builder(language).build(read_events(source))


@dataclass(frozen=True)
class _Open:
    """An open element, and how much of the segment came before it."""

    name: str
    element: Element
    characters: int
    letters: int
    """Number of characters other than white space."""
    atoms: int


@dataclass
class _Segment:
    """A segment that is being read."""

    events: list[Event] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    atoms: list[Atom] = field(default_factory=list)
    open: list[_Open] = field(default_factory=list)
    letters: int = 0
    broken: bool = False
    """Whether its tags are nested too deep, or too many of them have no counterpart."""
    single: int = 0
    """Number of tags without a counterpart."""

    def add(self, event: Event) -> None:
        self.events.append(event)
        if self.broken:
            return
        stack = tuple(each.element for each in self.open)
        if event.kind == "text":
            self.text.append(event.text)
            self.stacks += [stack] * len(event.text)
            self.letters += sum(map(len, event.text.split()))
        elif event.kind == "start":
            counts = len(self.stacks), self.letters, len(self.atoms)
            self.open.append(_Open(event.name, Element(event.raw), *counts))
            self.broken = len(self.open) > DEEPEST
        elif event.kind == "end":
            self._close(event)
        else:
            is_text = event.kind == "kept" or (event.kind == "void" and event.name != "wbr")
            self.atoms.append(Atom(len(self.stacks), event.raw, stack, is_text))

    def _close(self, event: Event) -> None:
        if all(each.name != event.name for each in self.open):  # nothing to close
            stack = tuple(each.element for each in self.open)
            self.atoms.append(Atom(len(self.stacks), event.raw, stack, is_end=True, is_single=True))
            self._count_single()
            return
        while self.open[-1].name != event.name:
            self._leave_open()
        opened = self.open.pop()
        opened.element.closing = event.raw
        if (opened.letters, opened.atoms) == (self.letters, len(self.atoms)):  # it holds only white space
            stack = tuple(each.element for each in self.open)
            self.stacks[opened.characters :] = [stack] * (len(self.stacks) - opened.characters)
            self.atoms.append(Atom(opened.characters, opened.element.opening + event.raw, stack))

    def _leave_open(self) -> None:
        """Treat the innermost element as a single tag, as it is not closed before those around it."""
        opened = self.open.pop()
        self._count_single()
        around = tuple(each.element for each in self.open)
        old = new = around
        for place in range(opened.characters, len(self.stacks)):  # neighbours with the same stack share the new one
            if self.stacks[place] is not old:
                old = self.stacks[place]
                new = tuple(each for each in old if each is not opened.element)
            self.stacks[place] = new
        inside = self.atoms[opened.atoms :]
        inside = [replace(atom, stack=tuple(x for x in atom.stack if x is not opened.element)) for atom in inside]
        self.atoms[opened.atoms :] = [Atom(opened.characters, opened.element.opening, around, is_single=True), *inside]

    def _count_single(self) -> None:
        self.single += 1
        self.broken |= self.single > DEEPEST

    def parts(self, language: str) -> Iterator[Part]:
        while self.open and not self.broken:
            self._leave_open()
        texts = sum(event.kind == "text" and not is_blank(event.text) for event in self.events)
        if texts > 1 and not self.broken:
            text = "".join(self.text)
            yield Marked(text, tuple(self.stacks), tuple(_spaced(atom, text) for atom in self.atoms))
            return
        for event in self.events:  # each text between tags is translated separately, and tags stay in place
            yield (
                SpacedLine.of(event.text, language) if event.kind == "text" and not is_blank(event.text) else event.raw
            )


def _spaced(atom: Atom, text: str) -> Atom:
    """The atom with the white space around it in the text."""
    if not atom.is_text:
        return atom
    before, after = text[max(0, atom.position - 1) : atom.position], text[atom.position : atom.position + 1]
    return replace(atom, space_before=before.isspace(), space_after=after.isspace())


class _Builder:
    """Builds parts from events."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._parts: list[Part] = []
        self._segment = _Segment()
        self._kept: Kept | None = None
        """An element that must not be translated and is still open."""

    def build(self, events: list[Event]) -> list[Part]:
        for event in events:
            if self._kept is not None and self._kept.ends_before(event):
                self._end_kept()
            if self._kept is not None:
                self._kept.add(event)
            elif event.kind == "start" and event.opaque:
                self._kept = Kept(event)
            elif is_inline(event):
                self._segment.add(event)
            else:
                self._flush()
                self._parts.append(event.raw)
            if self._kept is not None and self._kept.has_ended:
                self._end_kept()
        self._end_kept()
        self._flush()
        return self._parts

    def _end_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None and kept.is_inline:
            self._segment.add(Event("kept", kept.raw))
        elif kept is not None:
            self._flush()
            self._parts.append(kept.raw)

    def _flush(self) -> None:
        self._parts += self._segment.parts(self._language)
        self._segment = _Segment()


def escaped(text: str) -> str:
    """Text escaped for HTML."""
    return escape(text, quote=False)
