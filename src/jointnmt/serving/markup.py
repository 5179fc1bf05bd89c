"""HTML into sentences, and back with all of its tags: reading.

The text between two block-level tags is a segment. Everything that is no text is kept letter by letter, and so is what
must not be translated. Inline tags inside a segment go with the words they enclose (`jointnmt.serving.placing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape
from html.parser import HTMLParser
from itertools import accumulate

from jointnmt.serving.paragraphs import SpacedLine

# fmt: off
INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "del", "dfn", "em", "font", "i", "ins", "label",
    "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var",
})
# fmt: on
INLINE_VOID = frozenset({"img", "wbr"})
OPAQUE = frozenset({"script", "style", "template", "code", "kbd", "samp", "pre", "svg", "math", "textarea"})
"""Elements whose text is not translated."""
DEEPEST = 64
"""Inline elements inside each other whose place in a translation is looked for."""
# fmt: off
VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
})
# fmt: on


@dataclass(eq=False)
class Element:
    """An inline element: its tags as they were written."""

    opening: str
    closing: str = ""


Stack = tuple[Element, ...]
"""The inline elements around a place in a segment, outermost first."""


@dataclass(frozen=True)
class Atom:
    """Something inline without text: an image, a comment, an empty element."""

    position: int
    """In the segment's text, which it stands before."""
    raw: str
    stack: Stack


@dataclass(frozen=True)
class Marked:
    """A segment with inline tags inside."""

    text: str
    stacks: tuple[Stack, ...]
    """Of each character."""
    atoms: tuple[Atom, ...]

    def sentences(self) -> Iterator[Marked]:
        """Its sentences, without the white space between them."""
        begin, lines, rest = 0, SpacedLine.of(self.text).sentences, deque(self.atoms)  # which are in order
        for number, sentence in enumerate(lines, start=1):
            start = self.text.index(sentence, begin)
            end = start + len(sentence)
            until = len(self.text) + 1 if number == len(lines) else end
            moved = []
            while rest and rest[0].position < until:
                atom = rest.popleft()
                moved.append(Atom(max(0, atom.position - start), atom.raw, atom.stack))
            yield Marked(sentence, self.stacks[start:end], tuple(moved))
            begin = until


Part = str | SpacedLine | Marked
"""Of a document: what is kept as it is, text without tags inside, text with tags inside."""


def read_markup(source: str) -> list[Part]:
    """The parts of an HTML document or fragment, in order."""
    reader = _Reader(source)
    return _Builder().build(reader.events())


@dataclass(frozen=True)
class _Event:
    """A tag, a text, or something else."""

    kind: str
    """`start`, `end`, `void`, `text` or `other`."""
    raw: str
    name: str = ""
    text: str = ""
    opaque: bool = False


class _Reader(HTMLParser):
    """Cuts HTML into events that know how they were written."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self._source = source
        lines = source.split("\n")
        self._line_starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._found: list[tuple[int, str, str, str, bool]] = []
        private_use = map(chr, range(0xE000, 0xF900))
        self._instead = next((each for each in private_use if each not in source), "")
        """A character of no text, for `<` where nothing begins."""

    def events(self) -> list[_Event]:
        """All events, which together are the whole source."""
        whole = self._source.rfind(">") + 1  # no tag ends behind it, as the parser would find out anew for each
        self.feed(self._without_open_ends(self._source[:whole]))
        self.close()
        if whole < len(self._source):
            self._found.append((whole, "text", "", unescape(self._source[whole:]), False))
        bounds = [*(start for start, *_ in self._found), len(self._source)]
        return [
            _Event(kind, self._source[start:end], name, text, opaque)
            for (start, kind, name, text, opaque), end in zip(self._found, bounds[1:], strict=True)
        ]

    def _without_open_ends(self, source: str) -> str:
        """HTML of the same length, in which comments and sections that never end do not begin, as the parser would look
        for the end of each anew."""
        if not self._instead:
            return source
        for begin, end in (("<!--", "-->"), ("<![", "]")):
            last = source.rfind(end) + 1
            source = source[:last] + source[last:].replace(begin, self._instead + begin[1:])
        return source

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a start tag."""
        values = dict(attrs)
        untranslatable = values.get("translate") == "no" or "notranslate" in (values.get("class") or "").split()
        self._note("void" if tag in VOID else "start", tag, opaque=tag in OPAQUE or untranslatable)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self._note("void", tag)

    def handle_endtag(self, tag: str) -> None:
        """Note an end tag."""
        self._note("end", tag)

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self._note("text", text=data.replace(self._instead, "<") if self._instead else data)

    def handle_comment(self, data: str) -> None:
        """Note a comment."""
        self._note("other")

    def handle_decl(self, decl: str) -> None:
        """Note a declaration."""
        self._note("other")

    def handle_pi(self, data: str) -> None:
        """Note a processing instruction."""
        self._note("other")

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Read `<![...]>`; of an unknown kind, it is passed over like a comment."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i, report)

    def unknown_decl(self, data: str) -> None:
        """Note a marked section."""
        self._note("other")

    def _note(self, kind: str, name: str = "", text: str = "", opaque: bool = False) -> None:
        line, column = self.getpos()
        self._found.append((self._line_starts[line - 1] + column, kind, name, text, opaque))


@dataclass(frozen=True)
class _Open:
    """An element that has begun, and how much of the segment stood before it."""

    name: str
    element: Element
    characters: int
    letters: int
    """Characters that are no white space."""
    atoms: int


@dataclass
class _Segment:
    """A segment that is being read."""

    events: list[_Event] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    atoms: list[Atom] = field(default_factory=list)
    open: list[_Open] = field(default_factory=list)
    letters: int = 0
    broken: bool = False
    """Whether its tags are not well nested, or too deep."""

    def add(self, event: _Event) -> None:
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
            self.atoms.append(Atom(len(self.stacks), event.raw, stack))

    def _close(self, event: _Event) -> None:
        if not self.open or self.open[-1].name != event.name:
            self.broken = True
            return
        opened = self.open.pop()
        opened.element.closing = event.raw
        if (opened.letters, opened.atoms) == (self.letters, len(self.atoms)):  # it holds nothing but white space
            stack = tuple(each.element for each in self.open)
            self.stacks[opened.characters :] = [stack] * (len(self.stacks) - opened.characters)
            self.atoms.append(Atom(opened.characters, opened.element.opening + event.raw, stack))

    def parts(self) -> Iterator[Part]:
        texts = sum(event.kind == "text" and bool(event.text.strip()) for event in self.events)
        if texts > 1 and not self.broken and not self.open:
            yield Marked("".join(self.text), tuple(self.stacks), tuple(self.atoms))
            return
        for event in self.events:  # what stands between tags is translated by itself, and each tag stays where it is
            yield SpacedLine.of(event.text) if event.kind == "text" and event.text.strip() else event.raw


class _Builder:
    """Puts events together to parts."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._segment = _Segment()
        self._opaque: list[str] = []
        """The names of the elements that must not be translated and have not ended."""

    def build(self, events: list[_Event]) -> list[Part]:
        for event in events:
            if self._opaque:
                self._pass(event)
            elif event.kind == "start" and event.opaque:
                self._flush()
                self._pass(event)
            elif self._is_inline(event):
                self._segment.add(event)
            else:
                self._flush()
                self._parts.append(event.raw)
        self._flush()
        return self._parts

    def _is_inline(self, event: _Event) -> bool:
        if event.kind in ("text", "other"):
            return event.kind == "text" or event.raw.startswith("<!--")
        return event.name in (INLINE_VOID if event.kind == "void" else INLINE)

    def _pass(self, event: _Event) -> None:
        self._parts.append(event.raw)
        if event.kind == "start" and (not self._opaque or event.name == self._opaque[-1]):
            self._opaque.append(event.name)
        elif event.kind == "end" and event.name == self._opaque[-1]:
            self._opaque.pop()

    def _flush(self) -> None:
        self._parts += self._segment.parts()
        self._segment = _Segment()


def escaped(text: str) -> str:
    """Text as it stands in HTML."""
    return escape(text, quote=False)
