"""Sentence splitting."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from jointnmt.text.languages import base_language

CLOSING = "\"'”’»›“‘«‹)\\]}"
CJK_CLOSING = "”’）」』》"
OPENING = "\"'“‘„«‹([{¿¡—–-"

# One or more full stops with closing quotes and brackets, then white space unless it is a CJK stop. No stop stands
# before it, and no part gives back what it has taken (`++`): else a long run of stops would be scanned from each.
_END = re.compile(
    rf"(?<![.!?…])(?P<stop>[.!?…]++[{CLOSING}]*+(?:[ \u00a0\u202f]»(?=\s))?+)\s++|[。！？｡]++[{CJK_CLOSING}]*+\s*+"
)
_OPENING = re.compile(rf"[{OPENING}]*+")
_NUMERIC_ONLY = "#NUMERIC_ONLY#"
_WINDOW = 40
"""Characters before the end of a full stop in which its word is looked for; a longer word is no abbreviation."""


class Abbreviations(NamedTuple):
    """Words of a language whose full stop ends no sentence."""

    always: frozenset[str]
    before_numbers: frozenset[str]
    """Only with a number after it, as in `No. 5`."""

    @classmethod
    @lru_cache(64)
    def of(cls, language: str) -> Abbreviations:
        """The list of the Moses scripts, as `sacremoses` has it; that of English for a language without one."""
        from sacremoses.corpus import NonbreakingPrefixes  # imported here: it takes half a second, and few need it

        words = list(NonbreakingPrefixes().words(base_language(language)))
        numeric = frozenset(word.removesuffix(_NUMERIC_ONLY).strip() for word in words if word.endswith(_NUMERIC_ONLY))
        return cls(frozenset(words), numeric)


class SentenceSplitter:
    """Cuts text of a language into sentences.

    A sentence ends at `.`, `!`, `?` or `…` before white space, or at a Chinese or Japanese full stop; not before a word
    in lower case, and not after an abbreviation, a single letter or a short number, be they the last word of a sentence
    (`the U.S.`).

    Args:
        language: its code.
    """

    def __init__(self, language: str) -> None:
        self._abbreviations = Abbreviations.of(language)

    def split(self, text: str) -> list[str]:
        """The sentences of a text, without the white space between them, in time that is linear in its length."""
        text = text.strip()
        sentences = []
        begin = 0
        for end in _END.finditer(text):
            if end["stop"] and self._goes_on(text, begin, end):
                continue
            sentences.append(text[begin : end.end()].strip())
            begin = end.end()
        sentences.append(text[begin:])
        return [sentence for sentence in sentences if sentence]

    def _goes_on(self, text: str, begin: int, end: re.Match[str]) -> bool:
        """Whether a sentence that begins at `begin` goes on after a full stop: it is an abbreviation's, or a word in
        lower case follows."""
        opened = _OPENING.match(text, end.end())
        assert opened is not None  # it matches nothing, too
        following = text[opened.end() : opened.end() + 1]
        if following.islower():
            return True
        stop = end.end("stop")
        first = max(begin, stop - _WINDOW)
        words = text[first:stop].split()
        if not words or (len(words) == 1 and first > begin):
            return False
        return self._is_abbreviation(words[-1].lstrip(OPENING), following)

    def _is_abbreviation(self, word: str, following: str) -> bool:
        name = word.removesuffix(".")
        last = name.replace("-", ".").rpartition(".")[2]
        if (len(last) == 1 and last.isalpha()) or (len(name) <= 2 and name.isdecimal()):  # z. B., U.S., am 3. Mai
            return True
        always, before_numbers = self._abbreviations
        names = {name, name[:1].lower() + name[1:], name.rpartition("-")[2]}
        return not names.isdisjoint(always) or (following.isdigit() and not names.isdisjoint(before_numbers))


@lru_cache(64)
def splitter_of(language: str) -> SentenceSplitter:
    """The splitter of a language, made once."""
    return SentenceSplitter(language)


def holds_several(text: str, language: str) -> bool:
    """Whether a text has several sentences."""
    # most texts need no list of abbreviations
    return _END.search(text.strip()) is not None and len(splitter_of(language).split(text)) > 1
