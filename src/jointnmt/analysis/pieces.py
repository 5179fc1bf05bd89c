"""Groups of pieces: by training frequency, and by the class of their word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from jaxtyping import Int

from jointnmt.analysis.alignment import word_numbers
from jointnmt.analysis.buckets import BucketValue, RatioTerms
from jointnmt.errors import DataError
from jointnmt.text.languages import base_language
from jointnmt.text.segmenter import Segmenter

Grouping = Literal["all", "frequency", "class"]
BINS = 10
CLASSES = ("NOUN", "VERB", "ADJ/ADV", "OTHER")
BEGINNINGS = {"N": "NOUN", "PROPN": "NOUN", "V": "VERB", "J": "ADJ/ADV", "RB": "ADJ/ADV", "ADJ": "ADJ/ADV"}
"""Classes by prefixes of tags: TreeTagger's for English and German, and the universal tags."""
EXACT = {"ADV": "ADJ/ADV", "NUM": "OTHER"}
"""Classes of universal tags for which a prefix would be wrong or is missing."""


def word_class(tag: str, language: str) -> str:
    """The class of a part-of-speech tag (Emelin et al. 2019, section 4.2): one of `CLASSES`.

    In Russian, all tags that begin with A are adjectives, except universal ones.
    """
    tag = tag.upper()
    if tag in EXACT:
        return EXACT[tag]
    if base_language(language) == "ru" and tag.startswith("A") and tag not in ("ADP", "AUX"):
        return "ADJ/ADV"
    return next((found for beginning, found in BEGINNINGS.items() if tag.startswith(beginning)), "OTHER")


@dataclass(frozen=True)
class FrequencyBins:
    """Ten bins of pieces by training frequency, with equal numbers of pieces, the rarest first.

    Pieces that do not occur on this side of the training text form an eleventh bin.
    """

    of_piece: Int[np.ndarray, " V"]
    """The bin of each piece, from 0; `BINS` if it does not occur."""
    names: tuple[str, ...]
    """Names such as `1 (2-5)`: the bin and its frequencies."""

    @classmethod
    def of(cls, counts: Int[np.ndarray, " V"]) -> Self:
        """The bins of pieces with these counts; of equal counts, higher ids rank as rarer."""
        seen = np.flatnonzero(counts)
        ranked = seen[np.lexsort((-seen, counts[seen]))]
        bins = np.full(len(counts), BINS)
        names = []
        for number, members in enumerate(np.array_split(ranked, BINS)):
            bins[members] = number
            frequencies = sorted({int(counts[members[0]]), int(counts[members[-1]])}) if len(members) else []
            names.append(f"{number + 1} ({'-'.join(map(str, frequencies)) or 'none'})")
        return cls(bins, (*names, "unseen"))


@dataclass(frozen=True)
class SideText:
    """One side of a text: the groups of its pieces, sentence by sentence."""

    bins: Sequence[Int[np.ndarray, " _"]]
    """The frequency bin of each piece."""
    bin_names: tuple[str, ...]
    words: Sequence[Int[np.ndarray, " _"]]
    """The word number of each piece, from 0."""
    classes: Sequence[Int[np.ndarray, " _"]] | None
    """The index in `CLASSES` of each word; None without tags."""


def side_text(
    ids: Sequence[Sequence[int]],
    segmenter: Segmenter,
    bins: FrequencyBins,
    tags: Sequence[Sequence[str]] | None,
    places: Sequence[str] | None,
) -> SideText:
    """Assign the pieces of sentences to groups.

    Args:
        ids: the pieces of each sentence.
        segmenter: the segmenter of this side.
        bins: frequency bins of this side's vocabulary.
        tags: part-of-speech tags, one for each word of each sentence.
        places: file:line of each sentence's tags, for messages.

    Raises:
        DataError: naming the line, if the numbers of tags and words differ.
    """
    whole_words = segmenter.config.kind == "word"
    words = [np.array(word_numbers([*map(segmenter.piece, row)], whole_words), dtype=int) for row in ids]
    classes = None
    if tags is not None:
        for place, row, given in zip(places or [""] * len(ids), words, tags, strict=True):
            if (expected := int(row[-1]) + 1 if len(row) else 0) != len(given):
                raise DataError(
                    f"{place}: there are {len(given)} tags, but the sentence has {expected} words, separated by "
                    "spaces, after Moses tokenisation if the run uses it. Give one tag per word, separated by spaces."
                )
        classes = [np.array([CLASSES.index(word_class(tag, segmenter.language)) for tag in row], int) for row in tags]
    return SideText([bins.of_piece[np.array(row, dtype=int)] for row in ids], bins.names, words, classes)


def by_group(
    values: Sequence[npt.NDArray[np.float64]],
    text: SideText,
    of_word: Callable[[npt.NDArray[np.float64], npt.NDArray[np.int_]], npt.NDArray[np.float64]],
) -> dict[Grouping, list[BucketValue]]:
    """Means of a measure of pieces, with intervals: over `all`, by `frequency`, and by `class` if there are classes.

    Args:
        values: values of each piece of each sentence.
        text: the sentences.
        of_word: function that gives the measure of each word from the values of pieces and their word numbers:
            `any_piece` or `mean_piece`.
    """
    sums, counts = np.array([[row.sum()] for row in values]), np.array([[len(row)] for row in values], np.float64)
    found: dict[Grouping, list[BucketValue]] = {
        "all": RatioTerms(sums, counts).ratios(["all"]),
        "frequency": _means(values, text.bins, text.bin_names),
    }
    if text.classes is not None:
        words = [of_word(row, numbers) for row, numbers in zip(values, text.words, strict=True)]
        found["class"] = _means(words, text.classes, CLASSES)
    if not found["frequency"][-1].size:
        found["frequency"].pop()  # all pieces occur in the training text
    return found


def any_piece(values: npt.NDArray[np.float64], words: npt.NDArray[np.int_]) -> npt.NDArray[np.float64]:
    """The maximum over each word's pieces: 1 if any of them is a hit."""
    greatest = np.zeros(int(words[-1]) + 1 if len(words) else 0)
    np.maximum.at(greatest, words, values)
    return greatest


def mean_piece(values: npt.NDArray[np.float64], words: npt.NDArray[np.int_]) -> npt.NDArray[np.float64]:
    """The mean over each word's pieces."""
    return np.bincount(words, values) / np.bincount(words) if len(words) else np.zeros(0)


def _means(
    values: Sequence[npt.NDArray[np.float64]], groups: Sequence[npt.NDArray[np.int_]], names: Sequence[str]
) -> list[BucketValue]:
    """Means of each group of these names, with intervals, given the values of each sentence and their groups."""
    pairs = list(zip(values, groups, strict=True))
    sums = np.array([np.bincount(group, row, len(names)) for row, group in pairs])
    counts = np.array([np.bincount(group, minlength=len(names)) for _, group in pairs], np.float64)
    return RatioTerms(sums, counts).ratios(names)
