"""Languages of parallel texts, and which of their sides is the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jointnmt.data.quality.texts import GivenPair, GivenText
from jointnmt.errors import DataError
from jointnmt.text.identification import MajorityLanguage, identifiable, language_of_lines
from jointnmt.text.languages import base_language

LEAST_SHARE = 0.6
"""Least share of identifiable lines in one language for it to be taken as the side's language."""

SAID = "as said"
"""Reason for a language that the user gave."""

SAMPLE = 500
"""Least number of pairs by which languages are identified, if there are as many: spread evenly over the text."""


@dataclass(frozen=True)
class SideLanguage:
    """The language of one side of the texts, and the reason for it."""

    language: str
    """Language code; empty: unknown."""
    reason: str
    sure: bool

    @property
    def checked(self) -> bool:
        """Whether sentences in another language can be detected."""
        return self.sure and base_language(self.language) in identifiable()


def settle_languages(
    texts: Sequence[GivenText], source: str | None = None, target: str | None = None
) -> tuple[list[GivenText], tuple[SideLanguage, SideLanguage]]:
    """The texts with their sides in the same order, and the languages of source and target.

    Args:
        texts: texts as given.
        source: code of the source language, if given; None: that of the first text's first side.
        target: code of the target language, if given; None: that of the first text's second side.

    Raises:
        DataError: if a text is in other languages than the first one.
    """
    found = [_sides(text) for text in texts]
    first = _said(found[0], source, target)
    oriented = [_oriented(text, sides, first) for text, sides in zip(texts, found, strict=True)]
    return oriented, first


def _said(
    found: tuple[SideLanguage, SideLanguage], source: str | None, target: str | None
) -> tuple[SideLanguage, SideLanguage]:
    """The languages as given, or else as found."""
    if source is None and target is None:
        return found
    codes = [base_language(side.language) for side in found]
    swapped = (source is not None and base_language(source) == codes[1] != codes[0]) or (
        target is not None and base_language(target) == codes[0] != codes[1]
    )
    sides = found[::-1] if swapped else found
    said = [
        side if code is None else SideLanguage(code, SAID, True)
        for side, code in zip(sides, (source, target), strict=True)
    ]
    return said[0], said[1]


def _oriented(
    text: GivenText, sides: tuple[SideLanguage, SideLanguage], wanted: tuple[SideLanguage, SideLanguage]
) -> GivenText:
    codes, expected = ([base_language(side.language) for side in each] for each in (sides, wanted))
    as_given, exchanged = (
        sum(code == other != "" for code, other in zip(each, expected, strict=True)) for each in (codes, codes[::-1])
    )
    if exchanged > as_given:
        turned = swapped(text)
        note = f"{turned.name}: is read with its sides exchanged, the second one as the source"
        return replace(turned, notes=(*turned.notes, note))
    if all(side.sure for side in (*sides, *wanted)) and not set(codes) & set(expected):
        if all(side.reason == SAID for side in wanted) and not any(side.checked for side in sides):
            return text  # given languages count for more than a word in a file name
        raise DataError(
            f"{text.name}: is in {codes[0]} and {codes[1]}, but the source should be {expected[0]} and the target "
            f"{expected[1]}. Leave it out, or give the languages: --source, --target."
        )
    return text


def swapped(text: GivenText) -> GivenText:
    """The text with source and target exchanged."""
    if text.kind == "lines":
        return replace(text, files=text.files[::-1], encodings=text.encodings[::-1])
    source, target = text.selection.fields
    languages = text.selection.languages[::-1]
    return replace(
        text, selection=replace(text.selection, fields=(target, source), languages=(languages[0], languages[1]))
    )


def _sides(text: GivenText) -> tuple[SideLanguage, SideLanguage]:
    pairs = _spread(pair for pair in text.pairs() if not pair.problem)
    named = text.named_languages
    return (
        _side(named[0], language_of_lines(pair.source for pair in pairs)),
        _side(named[1], language_of_lines(pair.target for pair in pairs)),
    )


def _spread(pairs: Iterable[GivenPair]) -> list[GivenPair]:
    """Evenly spread pairs of a text of any length, as a corpus sorted by length begins with very short ones."""
    kept: list[GivenPair] = []
    step = 1
    for number, pair in enumerate(pairs):
        if number % step == 0:
            kept.append(pair)
        if len(kept) == 4 * SAMPLE:
            kept, step = kept[::2], 2 * step
    return kept


def _side(named: str | None, majority: MajorityLanguage) -> SideLanguage:
    """The language of a side by its file name and its text."""
    by_letters = f"{majority.share:.0%} of the longer lines"
    if named is not None and base_language(named) not in identifiable():
        return SideLanguage(named, "by its name; its text cannot be identified", True)
    if majority.share < LEAST_SHARE:
        return SideLanguage(
            named or majority.language,
            f"not clear: {by_letters} look like {majority.language or 'any language'}",
            False,
        )
    if named is None or base_language(named) == majority.language:
        return SideLanguage(named or majority.language, by_letters, True)
    return SideLanguage(named, f"not clear: its name says {named}, {by_letters} look like {majority.language}", False)
