"""HTML as a sequence of tags and texts with their original markup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from itertools import accumulate

# fmt: off
BLOCK = frozenset({
    "address", "article", "aside", "audio", "blockquote", "body", "button", "canvas", "caption", "center", "colgroup",
    "datalist", "dd", "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer",
    "form", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup", "html", "iframe", "legend",
    "li", "main", "map", "menu", "meter", "nav", "noframes", "noscript", "object", "ol", "optgroup", "option", "output",
    "p", "picture", "progress", "rp", "rt", "ruby", "search", "section", "select", "slot", "summary", "table", "tbody",
    "td", "tfoot", "th", "thead", "title", "tr", "ul", "video",
})
# fmt: on
"""Block-level elements, which separate sentences; elements unknown to HTML are inline."""
INLINE_VOID = frozenset({"img", "wbr"})
INLINE_OPAQUE = frozenset({"code", "kbd", "samp"})
OPAQUE = INLINE_OPAQUE | frozenset({"script", "style", "template", "pre", "svg", "math", "textarea"})
"""Elements whose text is not translated."""
# fmt: off
VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
})
# fmt: on
_BEGINS = re.compile("<[a-zA-Z/!?]")
"""Beginning of a tag, a comment or similar markup."""
_COMMENT = re.compile("<!--(?:-?>|.*?--!?>)", re.DOTALL)
"""A comment, as the HTML standard delimits it."""


@dataclass(frozen=True)
class Event:
    """A tag, a text, or something else."""

    kind: str
    """Kind: `start`, `end`, `void`, `text` or `other`; `kept`: a whole element that is not translated."""
    raw: str
    name: str = ""
    text: str = ""
    opaque: bool = False


def read_events(source: str) -> list[Event]:
    """All events of an HTML document or fragment, which together cover the whole source."""
    return _Reader(source).events()


def is_inline(event: Event) -> bool:
    """Whether it is part of a sentence."""
    if event.kind in ("text", "other"):
        return event.kind == "text" or (event.raw.startswith("<!--") and event.raw.endswith(">"))  # else it has no end
    return is_inline_element(event.name) or (event.kind == "void" and event.name in INLINE_VOID)


def is_inline_element(name: str) -> bool:
    """Whether an element of this name, with text to translate, is part of a sentence."""
    return name not in BLOCK and name not in VOID and name not in OPAQUE


class _Reader(HTMLParser):
    """Cuts HTML into events with their original markup."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self._source = source
        lines = source.split("\n")
        self._line_starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._found: list[tuple[int, str, str, str, bool]] = []
        private_use = map(chr, range(0xE000, 0xF900))
        self._instead = next((each for each in private_use if each not in source), "")
        """A character that does not occur in the source, to replace `<` where no markup begins."""

    def events(self) -> list[Event]:
        """All events, which together cover the whole source."""
        whole = self._source.rfind(">") + 1  # no tag ends after it; the parser would search for each
        self.feed(self._without_open_ends(self._source[:whole]))
        self.close()
        begun = _BEGINS.search(self._source, whole)
        end = begun.start() if begun else len(self._source)
        if whole < end:
            self._found.append((whole, "text", "", unescape(self._source[whole:end]), False))
        if begun:
            self._found.append((end, "other", "", "", False))
        bounds = [*(start for start, *_ in self._found), len(self._source)]
        return [
            Event(kind, self._source[start:end], name, text, opaque)
            for (start, kind, name, text, opaque), end in zip(self._found, bounds[1:], strict=True)
        ]

    def _without_open_ends(self, source: str) -> str:
        """HTML of the same length without the beginnings of comments and sections that never end, as the parser would
        search for the end of each."""
        if not self._instead:
            return source
        for begin, ends in (("<!--", ("-->", "--!>")), ("<![", ("]",))):
            last = max(map(source.rfind, ends)) + 1
            source = source[:last] + source[last:].replace(begin, self._instead + begin[1:])
        return source

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a start tag."""
        values = dict(attrs)
        untranslatable = (values.get("translate") or "").lower() == "no"
        untranslatable |= "notranslate" in (values.get("class") or "").split()
        self._note("void" if tag in VOID else "start", tag, opaque=tag in OPAQUE or untranslatable)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a self-closing tag."""
        self._note("void", tag)

    def handle_endtag(self, tag: str) -> None:
        """Record an end tag."""
        self._note("end", tag)

    def handle_data(self, data: str) -> None:
        """Record a text."""
        self._note("text", text=data.replace(self._instead, "<") if self._instead else data)

    def handle_comment(self, data: str) -> None:
        """Record a comment."""
        self._note("other")

    def handle_decl(self, decl: str) -> None:
        """Record a declaration."""
        self._note("other")

    def handle_pi(self, data: str) -> None:
        """Record a processing instruction."""
        self._note("other")

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Read a comment, including one that ends in `--!>` or at once, as `<!-->`."""
        found = _COMMENT.match(self.rawdata, i)
        if found is None:
            return -1
        if report:
            self.handle_comment("")
        return found.end()

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Read `<![...]>`; an unknown kind is skipped like a comment."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i, report)

    def unknown_decl(self, data: str) -> None:
        """Record a marked section."""
        self._note("other")

    def _note(self, kind: str, name: str = "", text: str = "", opaque: bool = False) -> None:
        line, column = self.getpos()
        self._found.append((self._line_starts[line - 1] + column, kind, name, text, opaque))
