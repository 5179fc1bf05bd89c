"""Sentence splitting."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from jointnmt.text.languages import base_language

CLOSING = "\"'”‟’»›“‘«‹)\\]}"
CJK_CLOSING = "”’）」』》"
OPENING = "\"'“‘„«‹([{¿¡—–-"

_SYMBOLS = "\u2600-\u27bf\ufe0f\u200d\U0001f000-\U0001faff"  # emoji

# One or more full stops with closing quotes, brackets and emoji, and with words of no letter after it; then white
# space, unless it is a CJK stop. No stop stands before it, and no part gives back what it has taken (`++`): else a long
# run of stops would be scanned from each.
_END = re.compile(
    rf"(?<![.!?…])(?P<stop>[.!?…]++)(?P<after>[{CLOSING}{_SYMBOLS}]*+(?:\s++[^\w\s{OPENING}][^\w\s]*+(?=\s|$))*+)(?:\s++|$)"
    rf"|[。！？｡]++[{CJK_CLOSING}]*+\s*+"
)
_OPENING = re.compile(rf"[{OPENING}]*+")
_WORD = re.compile(r"\w")
_GOING_ON = frozenset(",;:»)]}”’")
"""Characters that cannot begin a sentence."""
_NUMERIC_ONLY = "#NUMERIC_ONLY#"
_WINDOW = 40
"""Characters before a full stop in which its word is looked for; a longer word is not an abbreviation."""


_FURTHER = {
    "de": "Bd Bde Dipl Doz Fa Fam Frl Gebr Hl Hr Hrn Ing Jh Präs Str abzgl allg bes bspw dt einschl engl exkl franz "
    "geb gem inkl insb insbes ital kath lat med mind näml o.g phil röm russ s.o s.u u.Ä u.a.m v.a zw zzgl",
    "en": "Ave Blvd Cf Ft Hwy Inc Jr Mt Mts Pres Rd Sec al approx ca cf eds esp incl",
}
_BEFORE_NUMBERS = {
    "de": "Abb Abs Abschn Anm Apr Art Aufl Aug Dez Feb Jan Jul Jun Kap Mär Nov Okt Rn Sep Sept Tab Tel Ziff max",
    "en": "Ch Eq Fig Figs Oct Sect Sept Tab Tel Vol Vols ch fig no p para pp sec vol",
}
_ENDING = {"de": {"Art", "Bart", "Con", "Ens", "Res"}}  # words, or rarer as abbreviations than as words
_WITHOUT_ORDINALS = frozenset(("en", "es", "fr", "it", "nl", "pt"))
"""Languages that write no full stop after an ordinal."""


class Abbreviations(NamedTuple):
    """Words of a language whose full stop does not end a sentence."""

    always: frozenset[str]
    before_numbers: frozenset[str]
    """Words that are abbreviations only before a number, as in `No. 5`."""

    @classmethod
    @lru_cache(64)
    def of(cls, language: str) -> Abbreviations:
        """The abbreviations of the Moses scripts in `sacremoses` (English ones if a language has none), and more."""
        from sacremoses.corpus import NonbreakingPrefixes  # imported here: it takes half a second, and few need it

        base = base_language(language)
        words = set(NonbreakingPrefixes().words(base))
        numeric = {word.removesuffix(_NUMERIC_ONLY).strip() for word in words if word.endswith(_NUMERIC_ONLY)}
        always = words.difference(_ENDING.get(base, ())).union(_FURTHER.get(base, "").split())
        return cls(frozenset(always), frozenset(numeric.union(_BEFORE_NUMBERS.get(base, "").split())))


class SentenceSplitter:
    """Splits text of a language into sentences.

    A sentence ends at `.`, `!`, `?` or `…` before white space, or at a Chinese or Japanese full stop. It continues
    before a word in lower case (except after a bare `!` or `?`), and after an abbreviation, a single letter or a short
    number, even if that is its last word (`the U.S.`). Text without letters and digits, such as `:-)`, belongs to the
    sentence before it.

    Args:
        language: code of the language.
    """

    def __init__(self, language: str) -> None:
        self._abbreviations = Abbreviations.of(language)
        self._base = base_language(language)

    def split(self, text: str) -> list[str]:
        """The sentences of a text, without the white space between them, in linear time."""
        text = text.strip()
        ends = []
        begin = 0
        for end in _END.finditer(text):
            if not end["stop"] or not self._goes_on(text, begin, end):
                begin = end.end()
                ends.append(begin)
        return _with_words(text, [*ends, len(text)])

    def _goes_on(self, text: str, begin: int, end: re.Match[str]) -> bool:
        """Whether a sentence from `begin` continues after a full stop: that of an abbreviation, or before text that
        cannot begin a sentence."""
        opened = _OPENING.match(text, end.end())
        assert opened is not None  # it matches nothing, too
        following = text[opened.end() : opened.end() + 1]
        if following.islower():
            return bool(end["after"]) or end["stop"][-1] not in "!?"
        if following in _GOING_ON:
            return True
        if end["after"].strip(")]"):
            return False
        stop = end.end("stop")
        first = max(begin, stop - _WINDOW)
        words = text[first:stop].split()
        if not words or (len(words) == 1 and first > begin):
            return False
        return self._is_abbreviation(words[-1].lstrip(OPENING), following, len(words) == 1)

    def _is_abbreviation(self, word: str, following: str, is_first: bool) -> bool:
        name = word.removesuffix(".")
        if len(name) <= 2 and name.isdecimal():  # am 3. Mai; 1. Introduction
            return is_first or self._base not in _WITHOUT_ORDINALS
        *_, before, last = ("", *name.replace("-", ".").split("."))
        if len(last) == 1 and last.isalpha():  # z. B., U.S.
            return True
        always, before_numbers = self._abbreviations
        names = {name, name[:1].lower() + name[1:], last, f"{before}.{last}"}
        if following.isdigit() and (not names.isdisjoint(before_numbers) or (self._base, last[-3:]) == ("de", "str")):
            return True
        return not names.isdisjoint(always)


def _with_words(text: str, ends: list[int]) -> list[str]:
    """The parts of a text that end at these places; a part without letters and digits is joined to its neighbour."""
    parts: list[tuple[int, int, bool]] = []
    begin = 0
    for end in ends:
        has_words = _WORD.search(text, begin, end) is not None
        if parts and not (has_words and parts[-1][2]):
            first, _, had_words = parts.pop()
            parts.append((first, end, has_words or had_words))
        else:
            parts.append((begin, end, has_words))
        begin = end
    return [part for first, end, _ in parts if (part := text[first:end].strip())]


@lru_cache(64)
def splitter_of(language: str) -> SentenceSplitter:
    """The splitter of a language, created once."""
    return SentenceSplitter(language)


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text by `SentenceSplitter`, which is created only if there may be several."""
    text = text.strip()
    end = _END.search(text)
    if end is None or end.end() == len(text):  # as in most lines
        return [text] if text else []
    return splitter_of(language).split(text)
