"""Pieces of a text in groups: by their frequency in training, and by the class of their word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from jaxtyping import Int

from jointnmt.analysis.alignment import word_numbers
from jointnmt.analysis.buckets import BucketValue, RatioTerms
from jointnmt.errors import DataError
from jointnmt.text.languages import base_language
from jointnmt.text.segmentation import Segmenter

BINS = 10
CLASSES = ("NOUN", "VERB", "ADJ/ADV", "OTHER")
BEGINNINGS = {"N": "NOUN", "PROPN": "NOUN", "V": "VERB", "J": "ADJ/ADV", "RB": "ADJ/ADV", "ADJ": "ADJ/ADV"}
"""Of the tags of each class: those of TreeTagger for English and German, and the universal ones."""


def word_class(tag: str, language: str) -> str:
    """The class of a part-of-speech tag (Emelin et al. 2019, section 4.2): one of `CLASSES`.

    In Russian text, adjectives are all tags that begin with A, but for the universal ones.
    """
    tag = tag.upper()
    if tag == "ADV":
        return "ADJ/ADV"
    if base_language(language) == "ru" and tag.startswith("A") and tag not in ("ADP", "AUX"):
        return "ADJ/ADV"
    return next((found for beginning, found in BEGINNINGS.items() if tag.startswith(beginning)), "OTHER")


@dataclass(frozen=True)
class FrequencyBins:
    """Ten bins of pieces by their frequency in the training text, the rarest first, each of equally many pieces.

    Pieces that the training text does not have, on this side, are an eleventh bin.
    """

    of_piece: Int[np.ndarray, " V"]
    """The number of each piece's bin, from 0; `BINS`: not in the training text."""
    names: tuple[str, ...]
    """`1 (2-5)`: the bin and the frequencies in it."""

    @classmethod
    def of(cls, counts: Int[np.ndarray, " V"]) -> Self:
        """The bins of pieces that occur so many times; of equally frequent pieces, greater ids count as rarer."""
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
    """One side of a text: sentence by sentence, its pieces and the groups that they are in."""

    bins: Sequence[Int[np.ndarray, " _"]]
    """The frequency bin of each piece."""
    bin_names: tuple[str, ...]
    words: Sequence[Int[np.ndarray, " _"]]
    """The number of the word, from 0, that each piece is of."""
    classes: Sequence[Int[np.ndarray, " _"]] | None
    """The number in `CLASSES` of each word; None if no tags were given."""


def side_text(
    ids: Sequence[Sequence[int]],
    segmenter: Segmenter,
    bins: FrequencyBins,
    tags: Sequence[Sequence[str]] | None = None,
    places: Sequence[str] | None = None,
) -> SideText:
    """Sort the pieces of sentences into groups.

    Args:
        ids: the pieces of each sentence.
        segmenter: the one that made them.
        bins: of this side's vocabulary.
        tags: a part-of-speech tag for each word of each sentence.
        places: where each sentence's tags stand, as file:line, for messages.

    Raises:
        DataError: naming the line, if there are not as many tags as words.
    """
    whole_words = segmenter.config.kind == "word"
    words = [np.array(word_numbers([*map(segmenter.piece, row)], whole_words), dtype=int) for row in ids]
    classes = None
    if tags is not None:
        for place, row, given in zip(places or [""] * len(ids), words, tags, strict=True):
            if (expected := int(row[-1]) + 1 if len(row) else 0) != len(given):
                raise DataError(
                    f"{place}: there are {len(given)} tags, but the sentence has {expected} words: what stands between "
                    "spaces, after Moses tokenisation if the run has that. Tag the text as the model cuts it, a tag "
                    "for each word, with spaces between them."
                )
        classes = [np.array([CLASSES.index(word_class(tag, segmenter.language)) for tag in row], int) for row in tags]
    return SideText([bins.of_piece[np.array(row, dtype=int)] for row in ids], bins.names, words, classes)


def by_group(
    values: Sequence[npt.NDArray[np.float64]],
    text: SideText,
    of_word: Callable[[npt.NDArray[np.float64], npt.NDArray[np.int_]], npt.NDArray[np.float64]],
) -> dict[str, list[BucketValue]]:
    """Means of a measure of pieces, with intervals: over `all`, by `frequency`, and by `class` if there are classes.

    Args:
        values: of each piece of each sentence.
        text: the sentences.
        of_word: what the measure is of a word, of the values of pieces and the numbers of their words: `any_piece`, or
            `mean_piece`.
    """
    ones = [np.ones_like(row) for row in values]
    found = {
        "all": RatioTerms(np.array([[row.sum()] for row in values]), np.array([[row.sum()] for row in ones])).ratios(
            ["all"]
        ),
        "frequency": RatioTerms(*(_sums(each, text.bins, BINS + 1) for each in (values, ones))).ratios(text.bin_names),
    }
    if text.classes is not None:
        words = [of_word(row, numbers) for row, numbers in zip(values, text.words, strict=True)]
        counts = [np.ones_like(row) for row in words]
        found["class"] = RatioTerms(*(_sums(each, text.classes, len(CLASSES)) for each in (words, counts))).ratios(
            CLASSES
        )
    if not found["frequency"][-1].size:
        found["frequency"].pop()  # all pieces occur in the training text
    return found


def any_piece(values: npt.NDArray[np.float64], words: npt.NDArray[np.int_]) -> npt.NDArray[np.float64]:
    """The greatest value of each word's pieces: 1 if any of them is a hit."""
    greatest = np.zeros(int(words[-1]) + 1 if len(words) else 0)
    np.maximum.at(greatest, words, values)
    return greatest


def mean_piece(values: npt.NDArray[np.float64], words: npt.NDArray[np.int_]) -> npt.NDArray[np.float64]:
    """The mean over each word's pieces."""
    return np.bincount(words, values) / np.bincount(words) if len(words) else np.zeros(0)


def _sums(
    values: Sequence[npt.NDArray[np.float64]], groups: Sequence[npt.NDArray[np.int_]], count: int
) -> npt.NDArray[np.float64]:
    """The sum of each sentence's values in each group: `[sentences, groups]`."""
    return np.array([np.bincount(group, row, count) for row, group in zip(values, groups, strict=True)])
