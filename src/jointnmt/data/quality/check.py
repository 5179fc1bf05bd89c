"""All problems of parallel texts at once."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jointnmt.data.filtering import SeenDigests
from jointnmt.data.quality.alignment import LEAST_CORRELATION, FrequentWords, ShiftedBlock, features, shifted_blocks
from jointnmt.data.quality.languages import SideLanguage
from jointnmt.data.quality.problems import (
    NUMBERS,
    PROBLEMS,
    comparable,
    html_in,
    is_quoted_cell,
    odd_ratios,
    problem_of,
)
from jointnmt.data.quality.texts import GivenPair, GivenText
from jointnmt.errors import DataError
from jointnmt.text.identification import are_exchanged, is_other_language, told_apart
from jointnmt.text.invisible import without_invisible
from jointnmt.text.languages import base_language, num_words

MOST_FOREIGN = 0.2
"""If more of the lines look like another language, it is the language that is not as said, and no line is marked."""

MANY_EXCHANGED = 0.005
"""If the sides of more of the lines are surely exchanged, each line is asked whether its sides are, short or long."""

CHUNK = 100_000
"""Lines in which shifted blocks are looked for at once, in some 400 MB; one across the end is found in two parts."""

TELL_EVERY = 1000
"""Pairs between calls of what shows the progress."""

ReadingProgress = Callable[[str, int], None]
"""Told what is being read, and how many pairs of it are done."""


@dataclass
class CheckedText:
    """A text, and what was found in it."""

    text: GivenText
    problems: npt.NDArray[np.uint8]
    """`[pairs]`: 0, or a number of `NUMBERS`."""
    lengths: npt.NDArray[np.int32]
    """`[pairs, 2]`: characters of source and target."""
    words: npt.NDArray[np.int32]
    """`[pairs, 2]`: words, or characters in languages without spaces."""
    sides: npt.NDArray[np.uint64]
    """`[pairs, 2]`: digests of the sentences, as they are `comparable`."""
    digests: npt.NDArray[np.uint64]
    """`[pairs]`: of both sentences as they stand, their letters composed."""
    blocks: list[ShiftedBlock] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What concerns the whole text."""

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def good(self) -> npt.NDArray[np.bool_]:
        """Pairs without a problem."""
        return self.problems == 0

    def mark(self, bad: npt.NDArray[np.bool_], problem: str) -> None:
        """Give pairs a problem, unless they have one already."""
        self.problems[bad & self.good] = NUMBERS[problem]

    def counts(self) -> dict[str, int]:
        """Pairs of each problem that there is."""
        numbers = np.bincount(self.problems, minlength=len(PROBLEMS) + 1)
        return {name: int(numbers[number]) for name, number in NUMBERS.items() if numbers[number]}

    def good_pairs(self) -> Iterator[GivenPair]:
        """The pairs without a problem."""
        for pair, problem in zip(self.text.pairs(), self.problems, strict=True):
            if not problem:
                yield pair


def check_texts(
    texts: Sequence[GivenText],
    languages: tuple[SideLanguage, SideLanguage],
    progress: ReadingProgress = lambda what, done: None,
) -> list[CheckedText]:
    """Find all problems of all texts.

    Takes about 60 bytes a pair, and 25 s of one core for 166,136 pairs, most of it to tell languages.

    Raises:
        DataError: if a file cannot be read.
    """
    checked = [_read(text, languages, progress) for text in texts]
    for each in checked:
        each.mark(odd_ratios(each.lengths, each.good), "ratio")
    _mark_duplicates(checked)
    _mark_overlap(checked)
    return checked


class _Columns:
    """What is kept of each pair while a text is read."""

    def __init__(self) -> None:
        self.problems, self.sides, self.digests = bytearray(), bytearray(), bytearray()
        self.lengths, self.words, self.signatures = array("i"), array("i"), array("Q")
        self.html = self.invisible = self.quoted = 0
        """Pairs with tags or entities, with characters that no model sees, and with a cell in quotes."""
        self.tag = ""
        """The first of those."""

    def notes(self) -> Iterator[str]:
        """What is unusual about pairs, and no problem."""
        if self.html:
            yield (
                f"pairs with tags or entities of HTML, such as {self.tag}: {self.html:,}. They are taken as they "
                "stand: remove tags and entities, unless translations are to have them"
            )
        if self.quoted:
            yield (
                f"pairs in quotes with others doubled inside, as spreadsheets write cells: {self.quoted:,}. Quotes are "
                "taken as they stand, and a line break in a cell ends a line: a name that ends in .csv tells otherwise"
            )
        if self.invisible:
            yield f"pairs with invisible characters, such as soft hyphens, which no model sees: {self.invisible:,}"


def _read(text: GivenText, languages: tuple[SideLanguage, SideLanguage], progress: ReadingProgress) -> CheckedText:
    frequent = (
        FrequentWords.of(pair.source for pair in text.pairs() if not pair.problem),
        FrequentWords.of(pair.target for pair in text.pairs() if not pair.problem),
    )
    codes = base_language(languages[0].language), base_language(languages[1].language)
    apart = all(side.checked for side in languages) and told_apart(codes)
    columns = _Columns()
    for number, pair in enumerate(text.pairs(), start=1):
        sides = ("", "") if pair.problem else (pair.source, pair.target)  # half a pair is no part of the statistics
        problem = problem_of(pair)
        if not problem and _is_foreign(sides, languages):
            problem = "exchanged" if apart and are_exchanged(sides, codes) else "language"
        columns.problems.append(NUMBERS[problem] if problem else 0)
        if not problem:
            tag = html_in(sides[0]) or html_in(sides[1])
            columns.html, columns.tag = columns.html + bool(tag), columns.tag or tag
            columns.quoted += any(map(is_quoted_cell, sides))
            columns.invisible += any(without_invisible(side) != side for side in sides)
        composed = [unicodedata.normalize("NFC", " ".join(side.split())) for side in sides]
        columns.digests += _digest("\t".join(composed))
        for side, language, words in zip(sides, languages, frequent, strict=True):
            columns.lengths.append(len(side))
            columns.words.append(_num_words(side, language))
            columns.sides += _digest(comparable(side))
            columns.signatures.append(words.signature(side))
        if number % TELL_EVERY == 0:
            progress(text.name, number)
    if columns.problems.count(NUMBERS["exchanged"]) > MANY_EXCHANGED * len(columns.problems):
        _mark_exchanged(text, columns.problems, codes)
    return _checked(text, columns)


def _mark_exchanged(text: GivenText, problems: bytearray, codes: tuple[str, str]) -> None:
    """Give all pairs this problem whose sides are exchanged, also of sentences too short to tell their languages by."""
    for number, pair in enumerate(text.pairs()):
        if problems[number] in (0, NUMBERS["language"]) and are_exchanged((pair.source, pair.target), codes):
            problems[number] = NUMBERS["exchanged"]


def _num_words(text: str, side: SideLanguage) -> int:
    return num_words(text, side.language) if text.strip() else 0


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _is_foreign(sides: tuple[str, str], languages: tuple[SideLanguage, SideLanguage]) -> bool:
    """Whether one side is surely in another language than it should be."""
    pairs = zip(sides, languages, strict=True)
    return any(side.checked and is_other_language(text, base_language(side.language)) for text, side in pairs)


def _checked(text: GivenText, columns: _Columns) -> CheckedText:
    lengths = np.array(columns.lengths, np.int32).reshape(-1, 2)
    found = CheckedText(
        text,
        np.frombuffer(columns.problems, np.uint8).copy(),
        lengths,
        np.array(columns.words, np.int32).reshape(-1, 2),
        np.frombuffer(columns.sides, np.uint64).reshape(-1, 2),
        np.frombuffer(columns.digests, np.uint64),
        notes=[*text.notes, *(f"{text.name}: {note}" for note in columns.notes())],
    )
    if not len(found):
        raise DataError(f"{text.name}: is empty: there is no pair in it.")
    if exchanged := int((found.problems == NUMBERS["exchanged"]).sum()):
        found.notes.append(
            f"{text.name}: the sides of {exchanged:,} pairs stand the wrong way round, and are left out. To keep them, "
            "exchange their sides, or put them into a file of their own"
        )
    foreign = int((found.problems == NUMBERS["language"]).sum())
    if foreign > MOST_FOREIGN * len(found):
        found.problems[found.problems == NUMBERS["language"]] = 0
        found.notes.append(
            f"{text.name}: {foreign:,} lines look like other languages than they should be in; are the languages right "
            "(--source, --target)? None of them is marked"
        )
    _mark_shifted(found, np.array(columns.signatures, np.uint64).reshape(-1, 2))
    return found


def _mark_shifted(found: CheckedText, signatures: npt.NDArray[np.uint64]) -> None:
    """Find the shifted blocks, in chunks of the text; what is in one is no sign of another language, or of a copy."""
    correlations = []
    for chunk in np.array_split(np.arange(len(found)), math.ceil(len(found) / CHUNK)):
        lengths = found.lengths[chunk]
        blocks, correlation = shifted_blocks(*(features(signatures[chunk, side], lengths[:, side]) for side in (0, 1)))
        begin = int(chunk[0])
        found.blocks += [ShiftedBlock(each.begin + begin, each.end + begin, each.shift) for each in blocks]
        correlations.append(correlation)
    overall = float(np.mean(correlations))
    if overall < LEAST_CORRELATION:
        found.notes.append(
            f"{found.text.name}: lengths and words of the two sides have little to do with each other (correlation "
            f"{overall:.2f}; of translations it is above 0.5): do these lines belong together?"
        )
    hit = np.zeros(len(found), bool)
    for block in found.blocks:
        hit[block.begin : block.end] = True
    weaker = np.isin(found.problems, [NUMBERS[name] for name in ("exchanged", "language", "copy")])
    found.problems[hit & weaker] = 0
    found.mark(hit, "shifted")


def _mark_duplicates(checked: Sequence[CheckedText]) -> None:
    """Mark pairs that the same part of the corpus has had before."""
    for part in ("train", "valid", "test"):
        seen = SeenDigests()
        for each in checked:
            if each.text.part == part:
                candidates = np.flatnonzero(each.good)
                repeated = np.zeros(len(each), bool)
                repeated[candidates] = ~seen.add(each.digests[candidates])
                each.mark(repeated, "duplicate")


def _mark_overlap(checked: Sequence[CheckedText]) -> None:
    """Mark training pairs of which a sentence is in validation or test text, and validation pairs likewise."""
    for part, held_out in (("train", ("valid", "test")), ("valid", ("test",))):
        others = [each.sides[each.good] for each in checked if each.text.part in held_out]
        if not others:
            continue
        for column in (0, 1):
            known = np.unique(np.concatenate([sides[:, column] for sides in others]))
            for each in checked:
                if each.text.part == part:
                    each.mark(np.isin(each.sides[:, column], known), "overlap")
