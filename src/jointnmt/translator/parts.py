"""Lines of text into what the model takes: pieces of sentences that are not too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

from jointnmt.errors import DataError
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.sentences import split_sentences
from jointnmt.text.special import bos_id, eos_id, pad_id


class Line(NamedTuple):
    """A line to translate, or a pair of lines."""

    number: int
    """From 1."""
    origin: str
    """Where it stands, as file:line."""
    source: str
    target: str
    """A target prefix, or a whole translation."""


@dataclass(frozen=True)
class Part:
    """A sentence to translate: a line, or one of the sentences that a long line is split into."""

    origin: str
    number: tuple[int, int]
    """The line's, from 1, and the sentence's within the line, from 0."""
    source: tuple[int, ...]
    """Source pieces and the end mark."""
    target: tuple[int, ...]
    """Target pieces: a prefix, or a whole translation."""


def pair_lines(sources: Iterable[str], targets: Iterable[str], origin: str, what: str) -> Iterator[Line]:
    """Sources and targets side by side; `origin` names the sources' file, `what` the targets.

    Raises:
        DataError: if there are not as many of them.
    """
    for number, (source, target) in enumerate(zip_longest(sources, targets), start=1):
        if source is None or target is None:
            more, fewer = ("lines", what) if target is None else (what, "lines")
            raise DataError(
                f"{origin}:{number}: there are more {more} than {fewer}: the {fewer} end after {number - 1}. Give one "
                "for each."
            )
        yield Line(number, f"{origin}:{number}", source, target)


class Preparation:
    """How lines become parts: segmentation, and what is done about long ones.

    Args:
        segmentation: of both sides.
        max_length: most source tokens of a sentence, end mark included; None: any number.
        long: whether a longer line is an error, or split at the ends of its sentences; None: an error, and splitting
            is nothing that could be asked for.
        pieces: whether targets are not text, but pieces with spaces between them.
    """

    def __init__(
        self,
        segmentation: Segmentation,
        max_length: int | None,
        long: Literal["error", "split"] | None = None,
        pieces: bool = False,
    ) -> None:
        self.segmentation, self.max_length, self.long = segmentation, max_length, long
        target = segmentation.target
        self._ids = {target.piece(i): i for i in range(target.vocabulary_size)} if pieces else None

    def parts(self, lines: Sequence[Line]) -> list[list[Part]]:
        """The sentences of each line: one, none of an empty line, or several of a long line that is split.

        Raises:
            DataError: naming the line, if a sentence is too long, or if the target cannot go with the source: an empty
                line has no beginning or translation but the empty one, and a split line has several.
        """
        texts = [line.source.strip() for line in lines]
        encoded = self.segmentation.source.encode_ids_batch(texts)
        return [self._parts(*each) for each in zip(lines, texts, encoded, self._targets(lines), strict=True)]

    def _parts(self, line: Line, text: str, ids: list[int], target: tuple[int, ...]) -> list[Part]:
        sentences = [ids] if ids else []
        if self._too_long(ids):
            sentences = self._split(line, text, ids)
        if line.target.strip() and len(sentences) != 1:
            what = "an empty line" if not sentences else "a line that has to be split"
            raise DataError(f"{line.origin}: {what} cannot have a target or target prefix. Leave it empty, too.")
        return [Part(line.origin, (line.number, i), (*each, eos_id), target) for i, each in enumerate(sentences)]

    def _targets(self, lines: Sequence[Line]) -> list[tuple[int, ...]]:
        if self._ids is None:
            return [tuple(ids) for ids in self.segmentation.target.encode_ids_batch([line.target for line in lines])]
        return [self._ids_of_pieces(line, self._ids) for line in lines]

    def _ids_of_pieces(self, line: Line, known: Mapping[str, int]) -> tuple[int, ...]:
        pieces = line.target.split()
        unknown = [piece for piece in pieces if known.get(piece) in (None, pad_id, bos_id, eos_id)]
        if unknown:
            raise DataError(
                f"{line.origin}: the target holds {unknown[0]!r}, which is no piece of the vocabulary. Give the "
                "pieces of a translation by this model, without the end mark, or text without --pieces."
            )
        return tuple(known[piece] for piece in pieces)

    def _split(self, line: Line, text: str, ids: list[int]) -> list[list[int]]:
        if self.long != "split":
            other = " or have long lines split at the ends of their sentences (--split-long)" if self.long else ""
            raise DataError(f"{self._describe(line, ids)} Split it{',' if other else ''}{other}.")
        sentences = self.segmentation.source.encode_ids_batch(split_sentences(text))
        for sentence in sentences:
            if self._too_long(sentence):
                raise DataError(f"{self._describe(line, sentence)} It holds no end of a sentence: split it by hand.")
        return [sentence for sentence in sentences if sentence]

    def _too_long(self, ids: Sequence[int]) -> bool:
        return self.max_length is not None and len(ids) + 1 > self.max_length

    def _describe(self, line: Line, ids: Sequence[int]) -> str:
        return (
            f"{line.origin}: a sentence has {len(ids) + 1} tokens, end mark included, but the model takes at most "
            f"{self.max_length} (model.max_length)."
        )
