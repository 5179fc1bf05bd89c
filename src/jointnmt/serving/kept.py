"""HTML elements that must not be translated: where they end, and whether they are part of a sentence."""

from __future__ import annotations

from collections import Counter

from jointnmt.serving.html_events import INLINE_OPAQUE, Event, is_inline, is_inline_element

# fmt: off
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "details", "div", "dl", "fieldset", "figcaption", "figure", "footer",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "menu", "nav", "ol", "p", "pre", "section",
    "table", "ul",
})
# fmt: on
_ROWS = frozenset({"tr", "thead", "tbody", "tfoot"})
_CELLS = (_ROWS | {"td", "th"}, frozenset({"table"}))
_TERMS = (frozenset({"dt", "dd"}), frozenset({"dl"}))
_IMPLIED_ENDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), frozenset({"ul", "ol", "menu"})),
    "p": (_BLOCKS, frozenset({"button", "object"})),
    "dt": _TERMS,
    "dd": _TERMS,
    "td": _CELLS,
    "th": _CELLS,
    "tr": (_ROWS, frozenset({"table"})),
    "option": (frozenset({"option", "optgroup"}), frozenset()),
}
"""For elements whose end tag is optional: the start tags that end them, except inside these other elements."""


class Kept:
    """An element that must not be translated, as read so far."""

    def __init__(self, start: Event) -> None:
        self._name = start.name
        self._raw: list[str] = []
        self._open: list[str] = []
        self._counts: Counter[str] = Counter()
        """Counts of the names in `_open`."""
        self._is_inline = start.name in INLINE_OPAQUE or is_inline_element(start.name)
        self.add(start)

    @property
    def raw(self) -> str:
        """Its original markup."""
        return "".join(self._raw)

    @property
    def has_ended(self) -> bool:
        """Whether its end tag has been read."""
        return not self._open

    @property
    def is_inline(self) -> bool:
        """Whether it is part of the sentence around it."""
        return self._is_inline and self.has_ended

    def ends_before(self, event: Event) -> bool:
        """Whether it is ended by a tag other than its own end tag."""
        if self._name not in _IMPLIED_ENDS:
            return False
        if event.kind == "end":
            return not self._counts[event.name] and not is_inline_element(event.name)  # then it is its parent's
        starts, inside = _IMPLIED_ENDS[self._name]
        return event.kind in ("start", "void") and event.name in starts and not any(map(self._counts.get, inside))

    def add(self, event: Event) -> None:
        """Add an event that is part of it."""
        self._raw.append(event.raw)
        self._is_inline &= is_inline(event) or event.name in INLINE_OPAQUE
        if event.kind == "start":
            self._open.append(event.name)
            self._counts[event.name] += 1
        elif event.kind == "end" and self._counts[event.name]:
            while (name := self._open.pop()) != event.name:  # elements inside may lack their end tags
                self._counts[name] -= 1
            self._counts[event.name] -= 1
