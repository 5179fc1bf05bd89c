"""Preprocessing: from lines of text to piece ids of sentences no longer than the model takes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from jointnmt.errors import ConfigurationError, DataError
from jointnmt.text.invisible import has_surrogate, is_blank
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.sentences import split_sentences
from jointnmt.text.special import EOS, bos_id, eos_id, num_tokens, pad_id
from jointnmt.text.tags import split_tag
from jointnmt.translator.options import Split

Sources = Sequence[Sequence[int]]
"""A source sentence in the pieces of each reader."""

logger = logging.getLogger(__name__)


class Line(NamedTuple):
    """A line to translate, or a pair of lines."""

    number: int
    """Line number, from 1."""
    origin: str
    """Place of the line in messages, as file:line."""
    source: str
    target: str
    """A target prefix, or a whole translation."""
    error: DataError | None = None
    """Why the line cannot be read, if so."""
    part: int = 0
    """Number of the sentence within its line, from 0, if the caller split the line before."""


@dataclass(frozen=True)
class EncodedSentence:
    """A sentence as piece ids, without begin and end marks: a line, or one sentence of a long line that was split."""

    origin: str
    number: tuple[int, int]
    """Number of the line, from 1, and of the sentence within the line, from 0."""
    source: tuple[int, ...]
    target: tuple[int, ...]
    """A prefix, or a whole translation."""
    other_sources: tuple[tuple[int, ...], ...] = ()
    """The source in the pieces of the second and further models of an ensemble, if they read different pieces."""

    @property
    def source_tokens(self) -> int:
        """Length of the source, end mark included."""
        return num_tokens(self.source)

    @property
    def target_tokens(self) -> int:
        """Length of the target, end mark included."""
        return num_tokens(self.target)


def checked_texts(
    texts: Iterable[str | DataError], one: str = "text", several: str = "texts"
) -> Iterator[str | DataError]:
    """The texts, each checked to be a `str`, or an error in place of a line that cannot be read.

    `one` and `several` name them in messages.

    Raises:
        TypeError: at once for a single string, which would be read letter by letter, for a mapping or table, of which
            the keys would be read, and for what is not iterable; during iteration for an item of another type.
    """
    if isinstance(texts, str | bytes):
        raise TypeError(f"a list of {several} is needed, not a single one: [{texts!r}]")
    if isinstance(texts, Mapping) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        raise TypeError(f"a list of {several} is needed, not a {type(texts).__name__}")
    return _each_a_text(texts, one)


def _each_a_text(texts: Iterable[str | DataError], one: str) -> Iterator[str | DataError]:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str | DataError):
            raise TypeError(f"{one} {number} is {text!r:.80}, but must be a str")
        yield text


def tagged(
    texts: Iterable[str | DataError], tag: str | None, known: Sequence[str], needed: bool = False
) -> Iterator[str | DataError]:
    """The texts with a tag before each that is not empty.

    Args:
        texts: as given; without a common tag, each may begin with its own.
        tag: common tag of all texts; None: none.
        known: the model's tags.
        needed: whether the model was trained on tagged text alone; the first text without a tag is then warned of.

    Raises:
        ConfigurationError: if the model has no such tag.
    """
    if tag is None:
        return _warned_of_the_first_untagged(texts, known) if needed else iter(texts)
    check_known_tag(tag, known)
    return (text if isinstance(text, DataError) or is_blank(text) else f"{tag} {text}" for text in texts)


def check_known_tag(tag: str | None, known: Sequence[str]) -> None:
    """Refuse a tag that a model does not have.

    Raises:
        ConfigurationError: naming the tags that it has.
    """
    if tag is not None and tag not in known:
        has = f"It has {', '.join(known)}." if known else "It has none."
        raise ConfigurationError(f"The model was not trained with the tag {tag!r}. {has}")


def _warned_of_the_first_untagged(texts: Iterable[str | DataError], known: Sequence[str]) -> Iterator[str | DataError]:
    texts = iter(texts)
    for number, text in enumerate(texts, start=1):
        yield text
        if not isinstance(text, DataError) and not is_blank(text) and not split_tag(text, known)[0]:
            logger.warning(
                "Text %d begins without a tag, but all text that this model was trained on has one: %s. Without it, "
                "translations are poor. Give one for all texts (translate --tag, in Python tag=), or one before each.",
                number,
                ", ".join(known),
            )
            break
    yield from texts


def numbered_lines(sources: Iterable[str | DataError], origin: str) -> Iterator[Line]:
    """Lines of sources without targets; `origin` names their file."""
    return (_line(number, origin, source, "") for number, source in enumerate(sources, start=1))


def _line(number: int, origin: str, source: str | DataError, target: str | DataError) -> Line:
    for given in (source, target):
        if isinstance(given, DataError):
            return Line(number, f"{origin}:{number}", "", "", given)
    return Line(number, f"{origin}:{number}", str(source), str(target))


def pair_lines(
    sources: Iterable[str | DataError], targets: Iterable[str | DataError], origin: str, what: str
) -> Iterator[Line]:
    """Lines of sources with their targets; `origin` names the sources' file, `what` the targets.

    Raises:
        DataError: if their numbers of lines differ.
    """
    for number, (source, target) in enumerate(zip_longest(sources, targets), start=1):
        if source is None or target is None:
            more, fewer = ("lines", what) if target is None else (what, "lines")
            raise DataError(
                f"{origin}: there are more {more} than {fewer}, which end after {number - 1}. Give as many of each."
            )
        yield _line(number, origin, source, target)


class SourceReader(NamedTuple):
    """How a model reads sources."""

    segmenter: Segmenter
    max_length: int | None
    """Most tokens of a sentence, end mark included; None: no limit."""


class Excess(NamedTuple):
    """The length of a sentence that is too long for a model."""

    tokens: int
    """Tokens of the sentence, end mark included."""
    most: int
    """Most tokens that the model takes."""


def common_tags(readers: Sequence[SourceReader]) -> tuple[str, ...]:
    """The tags that all of these models have; to the others, a tag would be text."""
    first, *others = (reader.segmenter.tags for reader in readers)
    return tuple(tag for tag in first if all(tag in each for each in others))


class Preprocessor:
    """Segments lines, splits them into sentences, and refuses those that are too long for the model.

    Args:
        segmentation: segmentation of both sides.
        readers: how the model reads sources; several for an ensemble whose models read different pieces, of which the
            strictest limits the length. The first has the source side of `segmentation`.
        split: which lines are split into sentences; a line that is too long and is not split is an error, whose
            message offers splitting unless this is None.
        pieces: whether targets are pieces separated by spaces instead of text.
    """

    def __init__(
        self,
        segmentation: Segmentation,
        readers: Sequence[SourceReader],
        split: Split | None,
        pieces: bool,
    ) -> None:
        self.segmentation, self._readers, self.split = segmentation, readers, split
        target = segmentation.target
        self._ids = {target.piece(i): i for i in range(target.vocabulary_size)} if pieces else None

    def encode(self, lines: Sequence[Line]) -> list[list[EncodedSentence]]:
        """The sentences of each line: one, none for an empty line, several for a line that is split.

        Raises:
            DataError: naming the line, if a sentence is too long, or if an empty or a split line has a target.
        """
        encoded = []
        for each in self.encode_each(lines):
            if isinstance(each, DataError):
                raise each
            encoded.append(each)
        return encoded

    def encode_each(self, lines: Sequence[Line]) -> list[list[EncodedSentence] | DataError]:
        """The sentences of each line as by `encode`, with an error in place of a line that cannot be encoded."""
        wrong = [line.error or _no_text(line) for line in lines]
        good = [line for line, error in zip(lines, wrong, strict=True) if error is None]
        texts = [line.source.strip() for line in good]
        found = map(self._encode_or_error, good, texts, self.sources(texts), self._targets(good))
        return [next(found) if error is None else error for error in wrong]

    def sources(self, texts: Sequence[str]) -> list[Sources]:
        """The piece ids of each text, as each reader segments it."""
        return list(zip(*(reader.segmenter.encode_ids_batch(texts) for reader in self._readers), strict=True))

    def _encode_or_error(
        self, line: Line, text: str, sources: Sources, target: tuple[int, ...] | DataError
    ) -> list[EncodedSentence] | DataError:
        if isinstance(target, DataError):
            return target
        try:
            return self._encode_line(line, text, sources, target)
        except DataError as error:
            return error

    def _encode_line(self, line: Line, text: str, sources: Sources, target: tuple[int, ...]) -> list[EncodedSentence]:
        sentences = [sources] if sources[0] else []
        if self.split == "always" or self._refusal(line, sources):
            sentences = self._split(line, text, sources)
        if not is_blank(line.target) and len(sentences) != 1:
            what = "an empty line" if not sentences else "a line of several sentences"
            other = (
                ", or do not split the line (split='never'; --split never)"
                if sentences and self.split == "always"
                else ""
            )
            raise DataError(f"{line.origin}: {what} cannot have a target or target prefix. Leave it empty, too{other}.")
        return [
            EncodedSentence(line.origin, (line.number, line.part + i), tuple(first), target, tuple(map(tuple, others)))
            for i, (first, *others) in enumerate(sentences)
        ]

    def _targets(self, lines: Sequence[Line]) -> Sequence[tuple[int, ...] | DataError]:
        if self._ids is None:
            return [tuple(ids) for ids in self.segmentation.target.encode_ids_batch([line.target for line in lines])]
        return [self._ids_of_pieces(line, self._ids) for line in lines]

    def _ids_of_pieces(self, line: Line, known: Mapping[str, int]) -> tuple[int, ...] | DataError:
        pieces = line.target.split()
        if pieces[-1:] == [EOS]:  # as `translate --json` has them
            pieces.pop()
        unknown = [piece for piece in pieces if known.get(piece) in (None, pad_id, bos_id, eos_id)]
        if unknown:
            return DataError(
                f"{line.origin}: the target holds {unknown[0]!r}, which is not a piece of the vocabulary. Give the "
                "pieces of a translation by this model, or give the target as text."
            )
        return tuple(known[piece] for piece in pieces)

    def _split(self, line: Line, text: str, sources: Sources) -> list[Sources]:
        if self.split not in ("long", "always"):
            other = ", or have long lines split into sentences (split='long'; --split long)"
            raise DataError(f"{self._refusal(line, sources)} Split it{other if self.split else ''}.")
        source = self.segmentation.source
        tag, text = split_tag(text, common_tags(self._readers))
        texts = split_sentences(text, source.language)
        sentences = self.sources([f"{tag} {each}" if tag else each for each in texts]) if len(texts) != 1 else [sources]
        for sentence in sentences:
            if refusal := self._refusal(line, sentence):
                raise DataError(f"{refusal} Split it by hand: no end of a sentence was found in it.")
        return [sentence for sentence in sentences if sentence[0]]

    def _refusal(self, line: Line, sources: Sources) -> str:
        """Message for a sentence that is too long for one of the models; empty if it is not."""
        if (excess := self.excess(sources)) is None:
            return ""
        return (
            f"{line.origin}: a sentence has {excess.tokens} tokens, end mark included, but the model takes at most "
            f"{excess.most} (model.max_length)."
        )

    def excess(self, sources: Sources) -> Excess | None:
        """Length and limit of a sentence that is too long for one of the models; None if it is not."""
        for reader, ids in zip(self._readers, sources, strict=True):
            if reader.max_length is not None and num_tokens(ids) > reader.max_length:
                return Excess(num_tokens(ids), reader.max_length)
        return None


def _no_text(line: Line) -> DataError | None:
    for text in (line.source, line.target):
        if has_surrogate(text):
            return DataError(f"{line.origin}: holds an unpaired surrogate, so it is not text. Fix it.")
        if "\0" in text:
            return DataError(f"{line.origin}: holds a NUL byte, so it is not text. Remove it.")
        if "\n" in text.rstrip("\r\n"):
            return DataError(f"{line.origin}: has several lines. Give each line by itself.")
    return None
