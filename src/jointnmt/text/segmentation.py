"""Segmentation of raw text into pieces and back: BPE, unigram or words.

Text is normalised first: white space is collapsed, characters are composed (NFC) and, if configured, punctuation is
normalised and text tokenised, both by the rules of Moses, and lower-cased. Decoding undoes segmentation and Moses
tokenisation, not lower-casing nor the normalisation of punctuation. For BPE and unigram,
decoding the pieces of a normalised text gives exactly that text, if training has seen its characters; an unseen
character becomes `<unk>`, for unigram one for several in a row. Pieces and ids depend on text and configuration only.
"""

from __future__ import annotations

import hashlib
import json
import string
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from jointnmt.config import Config
from jointnmt.errors import DataError, JointNMTError, ModelError, reason
from jointnmt.text.moses import Moses, PunctuationNormalizer
from jointnmt.text.pieces import SPACE, BytePairs, Merges, Vocabulary, compact, read_vocabulary
from jointnmt.text.special import SPECIAL_PIECES, unk_id
from jointnmt.text.tags import check_tag, split_tag

_UNSEEN = frozenset(range(len(SPECIAL_PIECES))) - {unk_id}
MOST_REMEMBERED, LONGEST_REMEMBERED = 2**16, 64
"""Words of which a segmenter remembers the pieces, and the characters of the longest, so that no text fills memory."""

_SETTINGS, _JOINT, _SOURCE, _TARGET = "segmentation.json", "joint.json", "source.json", "target.json"


class SegmentationConfig(Config):
    """How text is segmented."""

    kind: Literal["bpe", "unigram", "word"] = Field("bpe", description="byte-pair encoding, unigram, or whole words")
    joint: bool = Field(True, description="one vocabulary for both sides; false: one for each")
    vocabulary_size: int = Field(
        10_000, ge=8, le=100_000_000, description="most pieces, special ones included; of the source, if not joint"
    )
    target_vocabulary_size: int | None = Field(
        None, ge=8, le=100_000_000, description="most pieces of the target; null: as the source"
    )
    min_frequency: int = Field(2, ge=1, le=10**9, description="of a merge (bpe) or a word; rarer words are unknown")
    lowercase: bool = Field(False, description="lower-case all text; not undone on output")
    moses: bool = Field(False, description="Moses tokenisation first, undone on output; false for tokenised text")
    normalize_punctuation: bool = Field(
        False, description="unify quotation marks, dashes and spaces first, as the Moses script does; not undone"
    )
    split_punctuation: bool = Field(
        False, description="no piece joins punctuation with letters (bpe, unigram); undone exactly on output"
    )

    tags: tuple[str, ...] = Field(
        (), description="pieces by themselves that a source may begin with; those of `data.train` are among them"
    )

    @model_validator(mode="after")
    def _tags_are_told_from_text(self) -> Self:
        for tag in self.tags:
            check_tag(tag)
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"tags names one twice: {', '.join(self.tags)}")
        return self

    @model_validator(mode="after")
    def _target_size_needs_two(self) -> Self:
        if self.joint and self.target_vocabulary_size is not None:
            raise ValueError(f"target_vocabulary_size {self.target_vocabulary_size} needs joint false")
        return self

    @model_validator(mode="after")
    def _words_keep_their_punctuation(self) -> Self:
        if self.split_punctuation and self.kind == "word":
            raise ValueError("split_punctuation needs kind bpe or unigram: whole words do not tell where a space was")
        return self


class Segmenter:
    """Segments and joins the text of one side; `tags` are those that a text may begin with, as a piece each."""

    def __init__(
        self, vocabulary: Vocabulary, config: SegmentationConfig, language: str, tags: Sequence[str] = ()
    ) -> None:
        self.config = config
        self.tags = tuple(tags)
        self.language = language
        self._vocabulary = vocabulary
        self._remembered: dict[str, list[int]] = {}
        self._preparation = Preparation.of(config, language)
        marked = {tag + SPACE: tag for tag in config.tags}
        ordinary = vocabulary.pieces[len(SPECIAL_PIECES) :]
        self._pieces = (*SPECIAL_PIECES, *(marked.get(piece, piece) for piece in ordinary))
        self._ids_of_tags = {tag: self._pieces.index(tag) for tag in self.tags}
        marks = range(len(SPECIAL_PIECES), min(len(SPECIAL_PIECES) + len(marked), len(self._pieces)))
        self._unwritten = _UNSEEN | {i for i in marks if self._pieces[i] in config.tags}

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, special ones included; fewer than configured if the text has no more."""
        return len(self._pieces)

    def piece(self, piece_id: int) -> str:
        """The piece of an id.

        Raises:
            IndexError: if there is no such id.
        """
        if not 0 <= piece_id < len(self._pieces):
            raise IndexError(f"no piece has the id {piece_id}: there are {len(self._pieces)}")
        return self._pieces[piece_id]

    def encode(self, text: str) -> list[str]:
        """The pieces of a text; unknown ones are `<unk>`."""
        return [self.piece(piece_id) for piece_id in self.encode_ids(text)]

    def encode_ids(self, text: str) -> list[int]:
        """The ids of a text's pieces, without begin and end marks."""
        return self.encode_ids_batch([text])[0]

    def encode_ids_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode_ids` of many texts.

        Raises:
            DataError: if one of them is not valid Unicode.
        """
        return [self._encode_ids(text) for text in texts]

    def _encode_ids(self, text: str) -> list[int]:
        tag, text = split_tag(text, self.tags) if self.tags else ("", text)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{text[:80]!r}: holds an unpaired surrogate, so it is not text. Correct it.") from error
        ids: list[int] = []
        for word in self._preparation.apply(text).split():
            known = self._remembered.get(word)
            ids += self._divide(word) if known is None else known
        return [self._ids_of_tags[tag], *ids] if tag and ids else ids

    def _divide(self, word: str) -> list[int]:
        """The ids of a word; those of the first words are remembered, as most words come again."""
        parts = divided(word, self.config)
        ids = [piece for part in parts for piece in self._vocabulary.divide(part)]
        # Text can hold a special piece if the vocabulary was saved without their marks' endings.
        ids = ids if _UNSEEN.isdisjoint(ids) else [unk_id if i in _UNSEEN else i for i in ids]
        if len(self._remembered) < MOST_REMEMBERED and len(word) <= LONGEST_REMEMBERED:
            self._remembered[word] = ids
        return ids

    def begins_word(self, piece_id: int) -> bool:
        """Whether a piece of BPE is the first one of a word: merges do not reach across."""
        return self._pieces[piece_id].startswith(SPACE)

    def letters(self, piece_id: int) -> tuple[int, ...]:
        """The pieces of single characters that BPE builds a piece from; a special piece or a tag stays as it is."""
        piece = self._pieces[piece_id]
        whole = piece_id < len(SPECIAL_PIECES) or piece in self.config.tags
        return (piece_id,) if whole else tuple(map(self._vocabulary.ids.__getitem__, piece))

    @property
    def merges(self) -> Merges:
        """Those of BPE; of other kinds there are none."""
        return self._vocabulary.merges if isinstance(self._vocabulary, BytePairs) else {}

    def decode(self, pieces: Sequence[str]) -> str:
        """The text of pieces."""
        words = pieces if self.config.kind == "word" else "".join(pieces).replace(SPACE, " ").split()
        moses = self._preparation.moses
        return moses.detokenize(words) if moses else " ".join(words)

    def decode_ids(self, ids: Sequence[int]) -> str:
        """The text of ids; special ids and tags are dropped, unknown pieces appear as `<unk>`."""
        return self.decode([self.piece(i) for i in ids if i not in self._unwritten])

    def to_json(self) -> str:
        """The vocabulary, in the format of `tokenizers`."""
        return self._vocabulary.to_json()


class Segmentation:
    """The segmenters of both sides, with one vocabulary if it is joint."""

    def __init__(self, source: Segmenter, target: Segmenter) -> None:
        self.source = source
        self.target = target
        self.config = source.config

    @property
    def languages(self) -> tuple[str, str]:
        """Of source and target."""
        return self.source.language, self.target.language

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.config.joint

    @classmethod
    def train(
        cls,
        config: SegmentationConfig,
        source_texts: Iterable[str],
        target_texts: Iterable[str],
        source_language: str,
        target_language: str,
    ) -> Self:
        """Learn the pieces from text, read once as a stream; memory grows with the number of distinct words.

        Raises:
            ConfigurationError: if the vocabulary is too small for the text's characters.
            DataError: if there is no text.
            JointNMTError: from reading the texts.
            MissingPackageError: if the extra `train` is not installed.
        """
        from jointnmt.text.learning import learn

        untagged = (split_tag(text, config.tags)[1] for text in source_texts)
        source_lines = map(Preparation.of(config, source_language).apply, untagged)
        target_lines = map(Preparation.of(config, target_language).apply, target_texts)
        if config.joint:
            source = target = learn(config, chain(source_lines, target_lines), config.vocabulary_size)
        else:
            source = learn(config, source_lines, config.vocabulary_size)
            without = config.model_copy(update={"tags": ()})
            target = learn(without, target_lines, config.target_vocabulary_size or config.vocabulary_size)
        return cls(Segmenter(source, config, source_language, config.tags), Segmenter(target, config, target_language))

    def save(self, directory: Path) -> None:
        """Write the vocabularies and the settings into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = {"config": self.config.plain(), "languages": [self.source.language, self.target.language]}
        (directory / _SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        sides = {_JOINT: self.source} if self.joint else {_SOURCE: self.source, _TARGET: self.target}
        for name, segmenter in sides.items():
            (directory / name).write_text(compact(segmenter.to_json()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` has written.

        Raises:
            ModelError: if a file is missing or damaged.
        """
        try:
            settings = json.loads((directory / _SETTINGS).read_text(encoding="utf-8"))
            config = SegmentationConfig.parse(settings["config"], origin=str(directory / _SETTINGS))
            source_language, target_language = settings["languages"]
            names = (_JOINT, _JOINT) if config.joint else (_SOURCE, _TARGET)
            source, target = (read_vocabulary((directory / name).read_text(encoding="utf-8")) for name in names)
            if missing := [tag for tag in config.tags if tag + SPACE not in source.ids]:
                raise ValueError(f"the vocabulary lacks the tag {missing[0]}")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, JointNMTError) as error:
            raise ModelError(
                f"{directory}: the segmentation is missing or damaged ({error}). Copy the whole RUN directory again, "
                "or train again."
            ) from error
        return cls(Segmenter(source, config, source_language, config.tags), Segmenter(target, config, target_language))

    def fingerprint(self) -> str:
        """A hash of everything that affects segmentation."""
        settings = self.config.plain()
        for name in ("split_punctuation", "normalize_punctuation", "tags"):
            if not settings[name]:  # newer than stores that may be in the cache
                del settings[name]
        parts = [json.dumps(settings, sort_keys=True), self.source.language, self.target.language]
        parts += [self.source.to_json(), self.target.to_json()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def hash_files(directory: Path) -> str:
    """SHA-256 of the names and the content of the files that `Segmentation.save` has written.

    Raises:
        ModelError: if there is none, or one cannot be read.
    """
    names = [name for name in (_SETTINGS, _JOINT, _SOURCE, _TARGET) if (directory / name).is_file()]
    digest = hashlib.sha256()
    try:
        for name in names:
            digest.update(f"{name} {hashlib.sha256((directory / name).read_bytes()).hexdigest()}\n".encode())
    except OSError as error:
        raise ModelError(f"{directory}: the segmentation cannot be read: {reason(error)}.") from error
    if _SETTINGS not in names:
        raise ModelError(f"{directory}: the segmentation is missing. Copy the whole RUN directory again.")
    return digest.hexdigest()


@dataclass(frozen=True)
class Preparation:
    """What is done to a text before it is cut into pieces."""

    moses: Moses | None = None
    normalizer: PunctuationNormalizer | None = None

    @classmethod
    def of(cls, config: SegmentationConfig, language: str) -> Self:
        """As configured, for a language."""
        return cls(
            Moses(language) if config.moses else None,
            PunctuationNormalizer(language) if config.normalize_punctuation else None,
        )

    def apply(self, text: str) -> str:
        """Text with collapsed white space, and with normalised punctuation and Moses tokens if asked for."""
        if self.normalizer:
            text = self.normalizer.normalize(text)
        text = " ".join(text.split())
        return self.moses.tokenize(text) if self.moses else text


def divided(word: str, config: SegmentationConfig) -> list[str]:
    """A word as it is looked up: normalised, with its space mark, and if so configured, each sign of punctuation apart.

    Every step looks at one word alone, and gives what it would give within its text.
    """
    word = unicodedata.normalize("NFC", word).replace(SPACE, "_")
    if config.lowercase:
        word = "".join(letter.lower() for letter in word)  # one by one: a sigma is the same wherever it stands
    if config.kind == "word":
        return [word]
    if not config.split_punctuation:
        return [SPACE + word]
    runs = ((apart, "".join(run)) for apart, run in groupby(SPACE + word, _is_punctuation))
    return [part for apart, run in runs for part in (run if apart else [run])]


def _is_punctuation(letter: str) -> bool:
    """Of Unicode's categories of punctuation, or one of ASCII's signs, such as `+`."""
    return letter in string.punctuation or unicodedata.category(letter).startswith("P")
