"""BPE-dropout: training text whose words are segmented again each epoch, with some merges left out at random.

Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization", Algorithm 1: at each step of merging
the characters of a word, each possible merge is left out with probability `rate`, and the best of the others is
applied; a word is finished when none is left. With rate 0 this is BPE.

Departure from the paper: the occurrences of a frequent word share `DRAWS` segmentations in an epoch, so that the cost
of an epoch grows with the number of distinct words, not with that of all words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from random import Random

import numpy as np
import numpy.typing as npt

from jointnmt.data.store import TokenStore
from jointnmt.text.pieces import Merges
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.segmenter import Segmenter

DRAWS = 16
"""Most segmentations of one word in an epoch. A larger number changes little, as most words occur less often."""

LONGEST = 200
"""Most characters of a word that are merged with each other: the time grows with the square of their number. A longer
word, such as a sentence of a language without spaces or a long URL, is cut."""
WORDS_AT_ONCE = 2**20

Ids = tuple[int, ...]


def segment_word(letters: Sequence[int], merges: Merges, rate: float, draw: Callable[[], float]) -> Ids:
    """The pieces of a word: Algorithm 1 of the paper.

    Args:
        letters: ids of its characters.
        merges: merges of pieces.
        rate: probability that a merge is left out, independently at each step.
        draw: returns a random number from [0, 1).
    """
    pieces = list(letters)
    while True:
        best: tuple[int, int] | None = None
        where = 0
        for at, pair in enumerate(pairwise(pieces)):
            merge = merges.get(pair)
            if merge is not None and (best is None or merge < best) and draw() >= rate:
                best, where = merge, at
        if best is None:
            return tuple(pieces)
        pieces[where : where + 2] = [best[1]]


def _parts(letters: Ids) -> list[Ids]:
    """A word, in parts if it is longer than `LONGEST`."""
    return [letters[begin : begin + LONGEST] for begin in range(0, len(letters), LONGEST)]


class ResegmentedStore:
    """A training store with other segmentations in each epoch, a pure function of the store, seed and epoch.

    Needs 12 bytes per word of the text (its number, and its pieces in this and the next epoch), and the memory of its
    distinct words.
    """

    def __init__(self, store: TokenStore, segmentation: Segmentation, rate: float, seed: int) -> None:
        """Read the words of a store.

        Args:
            store: the text in the pieces of BPE.
            segmentation: the store's segmentation, of kind `bpe`.
            rate: probability that a merge is left out.
            seed: seed of the draws.
        """
        self._store, self._rate, self._seed = store, rate, seed
        self._words = [
            _Words.of(store.ids("source"), segmentation.source),
            _Words.of(store.ids("target"), segmentation.target),
        ]
        self._merges = [side.merges for side in (segmentation.source, segmentation.target)]

    def of_epoch(self, epoch: int) -> EpochText:
        """The text of an epoch; epochs are numbered from 0."""
        return EpochText.draw(self._store, self._words, self._merges, self._rate, (self._seed, epoch))


@dataclass(frozen=True, eq=False)
class EpochText:
    """The pairs of a store, segmented for one epoch.

    A pair that becomes longer on a side than any of the store, or whose grid would have more cells, keeps the store's
    pieces, so that all limits that the store respects hold here, too.
    """

    lengths: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    """Lengths as in `TokenStore.lengths`."""
    _store: TokenStore
    _sides: Sequence[_Segmented]
    _as_stored: npt.NDArray[np.bool_]

    @classmethod
    def draw(
        cls, store: TokenStore, words: Sequence[_Words], merges: Sequence[Merges], rate: float, seed: Sequence[int]
    ) -> EpochText:
        """Segment every word of both sides."""
        sides = [
            _Segmented.draw(each, of, rate, [*seed, number])
            for number, (each, of) in enumerate(zip(words, merges, strict=True))
        ]
        source, target = (side.lengths() for side in sides)
        stored_source, stored_target = store.lengths
        cells = stored_source.astype(np.int64) * stored_target
        as_stored = (source > stored_source.max()) | (target > stored_target.max()) | (source * target > cells.max())
        lengths = np.where(as_stored, stored_source, source), np.where(as_stored, stored_target, target)
        return cls((lengths[0].astype(np.int32), lengths[1].astype(np.int32)), store, sides, as_stored)

    def pairs(self, indices: Iterable[int]) -> list[tuple[list[int], list[int]]]:
        """The pairs with these numbers; see `TokenStore.pairs`."""
        source, target = self._sides
        return [
            self._store.pairs([index])[0] if self._as_stored[index] else (source.ids(index), target.ids(index))
            for index in indices
        ]


@dataclass(frozen=True, eq=False)
class _Words:
    """The words of one side of a text."""

    letters: Sequence[Ids]
    """Ids of the characters of each distinct word."""
    numbers: npt.NDArray[np.int32]
    """Index into `letters` of every word of the text, one sentence after the other."""
    starts: npt.NDArray[np.int64]
    """`[n + 1]`: where each sentence begins in `numbers`, and the end."""

    @classmethod
    def of(cls, chunks: Iterable[tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]], segmenter: Segmenter) -> _Words:
        """Words from chunks of some thousand sentences: their pieces, and where each sentence begins among them."""
        bounds_word = np.array([segmenter.bounds_word(piece) for piece in range(segmenter.vocabulary_size)])
        known: dict[Ids, int] = {}
        numbers, counts = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        for ids, starts in chunks:
            begins = bounds_word[ids]
            if segmenter.ends_words:
                begins = np.roll(begins, 1)
            begins[starts[:-1][starts[:-1] < starts[1:]]] = True  # the first piece of a sentence, such as a tag
            bounds = np.flatnonzero(begins)
            pieces, ends = ids.tolist(), np.append(bounds[1:], len(ids)).tolist()
            words = [tuple(pieces[begin:end]) for begin, end in zip(bounds.tolist(), ends, strict=False)]
            numbers.append(np.array([known.setdefault(word, len(known)) for word in words], np.int32))
            counts.append(np.diff(np.concatenate([[0], np.cumsum(begins)])[starts]))
        letters = [tuple(chain.from_iterable(map(segmenter.letters, word))) for word in known]
        return cls(letters, np.concatenate(numbers), np.cumsum(np.concatenate(counts)))


@dataclass(frozen=True, eq=False)
class _Segmented:
    """The words of one side, each with the pieces that it has in an epoch."""

    words: _Words
    pieces: Sequence[Ids]
    """All segmentations of all distinct words, those of one word consecutively."""
    chosen: npt.NDArray[np.int32]
    """Index into `pieces` of every word of the text."""

    @classmethod
    def draw(cls, words: _Words, merges: Merges, rate: float, seed: Sequence[int]) -> _Segmented:
        """Segment each word as often as it occurs, at most `DRAWS` times, and assign the results to its occurrences."""
        draws = np.minimum(np.bincount(words.numbers, minlength=len(words.letters)), DRAWS)
        uniform = Random(" ".join(map(str, seed))).random
        pieces = [
            tuple(chain.from_iterable(segment_word(part, merges, rate, uniform) for part in _parts(letters)))
            for letters, times in zip(words.letters, draws.tolist(), strict=True)
            for _ in range(times)
        ]
        first = np.cumsum(draws) - draws
        generator, chosen = np.random.default_rng(seed), np.empty(len(words.numbers), np.int32)
        for begin in range(0, len(chosen), WORDS_AT_ONCE):
            numbers = words.numbers[begin : begin + WORDS_AT_ONCE]
            picks = (generator.random(len(numbers), np.float32) * draws[numbers]).astype(np.int32)
            chosen[begin : begin + len(numbers)] = first[numbers] + np.minimum(picks, draws[numbers] - 1)
        return cls(words, pieces, chosen)

    def lengths(self) -> npt.NDArray[np.int64]:
        """Pieces of each sentence, end mark included, `[n]`."""
        of_pieces = np.fromiter(map(len, self.pieces), np.int64, len(self.pieces))
        total = np.concatenate([[0], np.cumsum(of_pieces[self.chosen])])
        return total[self.words.starts[1:]] - total[self.words.starts[:-1]] + 1

    def ids(self, index: int) -> list[int]:
        """The pieces of a sentence."""
        begin, end = self.words.starts[index : index + 2]
        return list(chain.from_iterable(self.pieces[number] for number in self.chosen[begin:end].tolist()))
