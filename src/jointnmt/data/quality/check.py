"""Checks of parallel texts for all problems at once."""

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
from jointnmt.text.identification import are_exchanged, distinguishable, is_other_language
from jointnmt.text.invisible import without_invisible
from jointnmt.text.languages import base_language, num_words

MOST_FOREIGN = 0.2
"""Share of lines in other languages above which the given languages are taken to be wrong, and no line is marked."""

MANY_EXCHANGED = 0.005
"""Share of lines with surely exchanged sides above which every line, short or long, is checked for it."""

CHUNK = 100_000
"""Lines searched for shifted blocks at once, in about 400 MB; a block across a border is found in two parts."""

TELL_EVERY = 1000
"""Pairs between calls of the progress function."""

ReadingProgress = Callable[[str, int], None]
"""Called with the name of the text that is read, and the number of its pairs done."""


@dataclass
class CheckedText:
    """A text with the problems found in it."""

    text: GivenText
    problems: npt.NDArray[np.uint8]
    """Problem of each pair, `[pairs]`: 0 for none, or a number of `NUMBERS`."""
    lengths: npt.NDArray[np.int32]
    """Characters of source and target, `[pairs, 2]`."""
    words: npt.NDArray[np.int32]
    """Words of source and target, `[pairs, 2]`; characters in languages without spaces."""
    sides: npt.NDArray[np.uint64]
    """Digests of the sentences in `comparable` form, `[pairs, 2]`."""
    digests: npt.NDArray[np.uint64]
    """Digests of the pairs, `[pairs]`: of both sentences verbatim, but for composed letters."""
    blocks: list[ShiftedBlock] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes on the whole text."""

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def good(self) -> npt.NDArray[np.bool_]:
        """Pairs without a problem."""
        return self.problems == 0

    def mark(self, bad: npt.NDArray[np.bool_], problem: str) -> None:
        """Mark pairs with a problem, unless they have one already."""
        self.problems[bad & self.good] = NUMBERS[problem]

    def counts(self) -> dict[str, int]:
        """Number of pairs with each problem, of those that occur."""
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

    Takes about 60 bytes a pair, and 25 s of one core for 166,136 pairs, mostly for language identification.

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
    """Columns of per-pair values, collected while a text is read."""

    def __init__(self) -> None:
        self.problems, self.sides, self.digests = bytearray(), bytearray(), bytearray()
        self.lengths, self.words, self.signatures = array("i"), array("i"), array("Q")
        self.html = self.invisible = self.quoted = 0
        """Number of pairs with tags or entities, with characters that no model sees, and with a cell in quotes."""
        self.tag = ""
        """First tag or entity."""

    def notes(self) -> Iterator[str]:
        """Notes on pairs that are unusual but not a problem."""
        if self.html:
            yield (
                f"pairs with tags or entities of HTML, such as {self.tag}: {self.html:,}. They are kept: "
                "remove tags and entities, unless translations should have them"
            )
        if self.quoted:
            yield (
                f"pairs in quotes with doubled quotes inside, as spreadsheets write cells: {self.quoted:,}. Quotes are "
                "kept, and a line break in a cell ends a line; rename the file to .csv to have cells unquoted"
            )
        if self.invisible:
            yield f"pairs with invisible characters, such as soft hyphens, which no model sees: {self.invisible:,}"


def _read(text: GivenText, languages: tuple[SideLanguage, SideLanguage], progress: ReadingProgress) -> CheckedText:
    frequent = (
        FrequentWords.of(pair.source for pair in text.pairs() if not pair.problem),
        FrequentWords.of(pair.target for pair in text.pairs() if not pair.problem),
    )
    codes = base_language(languages[0].language), base_language(languages[1].language)
    apart = all(side.checked for side in languages) and distinguishable(codes)
    columns = _Columns()
    for number, pair in enumerate(text.pairs(), start=1):
        sides = ("", "") if pair.problem else (pair.source, pair.target)  # half a pair must not count in the statistics
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
            columns.words.append(num_words(side, language.language))
            columns.sides += _digest(comparable(side))
            columns.signatures.append(words.signature(side))
        if number % TELL_EVERY == 0:
            progress(text.name, number)
    if columns.problems.count(NUMBERS["exchanged"]) > MANY_EXCHANGED * len(columns.problems):
        _mark_exchanged(text, columns.problems, codes)
    return _checked(text, columns)


def _mark_exchanged(text: GivenText, problems: bytearray, codes: tuple[str, str]) -> None:
    """Mark all pairs with exchanged sides, including those too short for language identification alone."""
    for number, pair in enumerate(text.pairs()):
        if problems[number] in (0, NUMBERS["language"]) and are_exchanged((pair.source, pair.target), codes):
            problems[number] = NUMBERS["exchanged"]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _is_foreign(sides: tuple[str, str], languages: tuple[SideLanguage, SideLanguage]) -> bool:
    """Whether a side is surely in another language than expected."""
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
        raise DataError(f"{text.name}: contains no pair.")
    if exchanged := int((found.problems == NUMBERS["exchanged"]).sum()):
        found.notes.append(
            f"{text.name}: pairs with exchanged sides, which are left out: {exchanged:,}. To keep them, exchange their "
            "sides, or put them into a separate file"
        )
    foreign = int((found.problems == NUMBERS["language"]).sum())
    if foreign > MOST_FOREIGN * len(found):
        found.problems[found.problems == NUMBERS["language"]] = 0
        found.notes.append(
            f"{text.name}: {foreign:,} lines look like other languages than expected; check the languages (--source, "
            "--target). These lines are not marked"
        )
    _mark_shifted(found, np.array(columns.signatures, np.uint64).reshape(-1, 2))
    return found


def _mark_shifted(found: CheckedText, signatures: npt.NDArray[np.uint64]) -> None:
    """Mark the shifted blocks, found in chunks of the text; lines in one are not checked for language or copies."""
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
            f"{found.text.name}: lengths and words of the two sides are hardly related (correlation {overall:.2f}; "
            "above 0.5 for translations): check that these lines belong together"
        )
    hit = np.zeros(len(found), bool)
    for block in found.blocks:
        hit[block.begin : block.end] = True
    weaker = np.isin(found.problems, [NUMBERS[name] for name in ("exchanged", "language", "copy")])
    found.problems[hit & weaker] = 0
    found.mark(hit, "shifted")


def _mark_duplicates(checked: Sequence[CheckedText]) -> None:
    """Mark pairs that occurred before in the same part of the corpus."""
    for part in ("train", "valid", "test"):
        seen = SeenDigests()
        for each in checked:
            if each.text.part == part:
                candidates = np.flatnonzero(each.good)
                repeated = np.zeros(len(each), bool)
                repeated[candidates] = ~seen.add(each.digests[candidates])
                each.mark(repeated, "duplicate")


def _mark_overlap(checked: Sequence[CheckedText]) -> None:
    """Mark training pairs with a sentence of the validation or test text, and validation pairs with one of the test."""
    for part, held_out in (("train", ("valid", "test")), ("valid", ("test",))):
        others = [each.sides[each.good] for each in checked if each.text.part in held_out]
        if not others:
            continue
        for column in (0, 1):
            known = np.unique(np.concatenate([sides[:, column] for sides in others]))
            for each in checked:
                if each.text.part == part:
                    each.mark(np.isin(each.sides[:, column], known), "overlap")
