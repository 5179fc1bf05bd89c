"""From words to pieces by a learnt vocabulary: byte-pair encoding, unigram, or whole words.

Vocabularies are learnt by the library `tokenizers` (`text/learning.py`) and stored in its format; pieces and ids equal
those of the library. Dividing a word takes few lines of code, so that translating does not need that library and its
dependencies.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from jointnmt.text.special import SPECIAL_PIECES, unk_id

SPACE = "▁"
"""The space mark of pieces (U+2581); in text, this character is replaced by an underscore."""

MARKS = tuple(piece + SPACE for piece in SPECIAL_PIECES)
"""The special pieces as stored in the vocabulary, with an ending that no piece of text has."""

Merges = Mapping[tuple[int, int], tuple[int, int]]
"""Merges by pair of pieces: rank (the first learnt is lowest) and resulting piece."""

UNKNOWN_PENALTY = 10.0
"""Difference of the score of an unknown character below the lowest one of a unigram vocabulary."""


class Vocabulary(ABC):
    """The pieces of one side, and the division of parts of a text into them.

    Args:
        values: a tokenizer in the format of `tokenizers`.
        pieces: stored pieces in the order of their ids.
    """

    def __init__(self, values: dict[str, Any], pieces: Sequence[str]) -> None:
        self._values = values
        self.pieces = tuple(pieces)
        self.ends_words = values["model"].get("end_of_word_suffix") == SPACE
        """Whether a space mark is the end of a word, as in merges of subword-nmt, not its beginning."""
        if tuple(piece.strip(SPACE) for piece in self.pieces[: len(MARKS)]) != SPECIAL_PIECES:
            raise ValueError(f"the vocabulary should begin with {', '.join(SPECIAL_PIECES)} and have no gaps")
        self.ids = {piece: number for number, piece in enumerate(self.pieces)}

    @abstractmethod
    def divide(self, part: str) -> list[int]:
        """The piece ids of a part of a text, such as a word; no piece spans two parts."""

    def stored(self, name: str) -> str:
        """The name of a special piece or a tag as a piece that no text has."""
        return SPACE + name if self.ends_words else name + SPACE

    def letters(self, part: str) -> list[str]:
        """The characters that BPE begins with; the last one includes a space mark that ends a word."""
        return letters_of(part, self.ends_words)

    def to_values(self) -> dict[str, Any]:
        """The vocabulary in the format of `tokenizers`."""
        return self._values

    def to_json(self) -> str:
        """The vocabulary in the format and layout of `tokenizers`."""
        return json.dumps(self._values, ensure_ascii=False, indent=2)


class BytePairs(Vocabulary):
    """Pairs of neighbours are merged in the order in which they were learnt (Sennrich et al. 2016).

    Of equal pairs, the left one is merged first. As in `tokenizers`, a pair that this makes may precede the others; as
    in subword-nmt, if pieces end words, the others come first.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        model = values["model"]
        super().__init__(values, _in_order(model["vocab"]))
        self.merges: Merges = {
            (self.ids[left], self.ids[right]): (rank, self.ids[left + right])
            for rank, (left, right) in enumerate(model["merges"])
        }

    def divide(self, part: str) -> list[int]:
        """Ids in O(n log n) time for a part of length n."""
        ids = [self.ids.get(letter, unk_id) for letter in self.letters(part)]
        following = [*range(1, len(ids)), 0]
        before = [len(ids) - 1, *range(len(ids) - 1)]
        waiting = [merge for place in range(len(ids) - 1) if (merge := self._merge(ids, place, place + 1))]
        heapify(waiting)
        while waiting:
            for merge in self._next(waiting):
                place, gone = merge.place, following[merge.place]
                if (ids[place], ids[gone]) != merge.pair or gone <= place:
                    continue  # one of the two has been merged with another since
                ids[place], ids[gone] = merge.piece, -1
                following[place] = following[gone]
                before[following[gone]] = place
                for left, right in ((before[place], place), (place, following[place])):
                    if left < right and (new := self._merge(ids, left, right)):
                        heappush(waiting, new)
        return [piece for piece in ids if piece >= 0]

    def _next(self, waiting: list[_Merge]) -> list[_Merge]:
        """The next merges, which no merge that they make possible may precede; removed from the heap."""
        found = [heappop(waiting)]
        while self.ends_words and waiting and waiting[0].rank == found[0].rank:
            found.append(heappop(waiting))
        return found

    def _merge(self, ids: list[int], left: int, right: int) -> _Merge | None:
        pair = ids[left], ids[right]
        found = self.merges.get(pair)
        return None if found is None else _Merge(found[0], left, found[1], pair)

    @cached_property
    def parts(self) -> dict[int, tuple[int, int]]:
        """The two pieces that each merged piece consists of, by the merge that was learnt first."""
        found: dict[int, tuple[int, int]] = {}
        for pair, (_, piece) in self.merges.items():
            found.setdefault(piece, pair)
        return found


class OwnPieces(Vocabulary):
    """A joint BPE for one side, restricted to that side's own pieces (Sennrich et al. 2016).

    Where merging produces another piece, it is split into the two that it was merged from, recursively down to
    characters.
    """

    def __init__(self, joint: BytePairs, own: Collection[str], renumbered: bool) -> None:
        """Keep the pieces in `own`; if `renumbered`, only these have ids, in their order.

        Otherwise, the ids and the characters of the joint vocabulary are kept.
        """
        kept = [number for number, piece in enumerate(joint.pieces) if number < len(MARKS) or piece in own]
        super().__init__(joint.to_values(), [joint.pieces[i] for i in kept] if renumbered else joint.pieces)
        self._joint, self._ids = joint, {old: new if renumbered else old for new, old in enumerate(kept)}
        self._renumbered = renumbered

    def divide(self, part: str) -> list[int]:
        return [piece for whole in self._joint.divide(part) for piece in self._cut(whole)]

    def _cut(self, piece: int) -> list[int]:
        if piece in self._ids:
            return [self._ids[piece]]
        if piece not in self._joint.parts:
            return [unk_id if self._renumbered else piece]
        left, right = self._joint.parts[piece]
        return self._cut(left) + self._cut(right)


class _Merge(NamedTuple):
    """A candidate for the next merge, ordered by rank, then from left to right."""

    rank: int
    place: int
    piece: int
    pair: tuple[int, int]


class Unigram(Vocabulary):
    """The pieces with the greatest sum of log-probabilities (Kudo 2018), by the Viterbi algorithm."""

    def __init__(self, values: dict[str, Any]) -> None:
        scored = values["model"]["vocab"]
        super().__init__(values, [piece for piece, _ in scored])
        self._scores = [float(score) for _, score in scored]
        self._unknown = min(self._scores) - UNKNOWN_PENALTY
        self._longest = max(map(len, self.pieces))

    def divide(self, part: str) -> list[int]:
        """Ids of the best pieces; consecutive unknown characters are one unknown piece."""
        best: list[tuple[float, int, int] | None] = [(0.0, 0, unk_id), *[None] * len(part)]
        for start in range(len(part)):
            till_here = best[start]
            assert till_here is not None  # a character is a piece, or unknown
            for end in range(start + 1, min(start + self._longest, len(part)) + 1):
                piece = self.ids.get(part[start:end], unk_id)
                if piece == unk_id and end > start + 1:
                    continue
                score = till_here[0] + (self._unknown if piece == unk_id else self._scores[piece])
                known = best[end]
                if known is None or score > known[0]:
                    best[end] = score, start, piece
        return self._backwards(best)

    def _backwards(self, best: Sequence[tuple[float, int, int] | None]) -> list[int]:
        ids: list[int] = []
        end = len(best) - 1
        while end > 0:
            found = best[end]
            assert found is not None
            _, end, piece = found
            if not (piece == unk_id and ids and ids[-1] == unk_id):
                ids.append(piece)
        return ids[::-1]


class Words(Vocabulary):
    """Each word is a piece, or unknown."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values, _in_order(values["model"]["vocab"]))

    def divide(self, part: str) -> list[int]:
        return [self.ids.get(part, unk_id)]


KINDS: dict[str, type[BytePairs] | type[Unigram] | type[Words]] = {
    "BPE": BytePairs,
    "Unigram": Unigram,
    "WordLevel": Words,
}


def read_vocabulary(text: str) -> Vocabulary:
    """A vocabulary from its JSON, without special pieces that could be recognised in text.

    Raises:
        ValueError, KeyError, TypeError: if it is not a vocabulary.
    """
    values = json.loads(text)
    model = values["model"]
    values["added_tokens"] = []
    if "merges" in model:  # pairs, or strings with a space between the two
        model["merges"] = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    return KINDS[model["type"]](values)


def compact(text: str) -> str:
    """The JSON of a vocabulary at less than half its length: without white space, and each merge as one string.

    `tokenizers` reads merges in both forms. No piece contains a space, as text is divided at white space first.
    """
    values = json.loads(text)
    if merges := values["model"].get("merges"):
        values["model"]["merges"] = [" ".join(pair) for pair in merges]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def letters_of(part: str, ends_words: bool) -> list[str]:
    """The characters of a part of a text; with `ends_words`, the last one includes its space mark."""
    return [*part[:-2], part[-2:]] if ends_words and part[1:].endswith(SPACE) else list(part)


def _in_order(ids: dict[str, int]) -> list[str]:
    """The pieces in the order of their ids; empty if an id is missing or occurs twice."""
    pieces = sorted(ids, key=ids.__getitem__)
    return pieces if [ids[piece] for piece in pieces] == list(range(len(pieces))) else []
