"""Segmentation of raw text into pieces and back: BPE, unigram or words.

Text is normalised first: white space is collapsed, characters are composed (NFC) and, if configured, punctuation is
normalised, text tokenised and truecased, all by the rules of Moses, and lower-cased. Decoding undoes segmentation,
Moses tokenisation and truecasing, not lower-casing nor the normalisation of punctuation. For BPE and unigram, decoding
the pieces of a normalised text gives exactly that text, if training has seen its characters; an unseen character
becomes `<unk>`, for unigram one for several in a row. Pieces and ids depend on text and configuration only.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from jointnmt.config import Config
from jointnmt.errors import DataError, JointNMTError, MissingPackageError, ModelError, reason
from jointnmt.text.kept_lines import KeptLines
from jointnmt.text.moses import Truecaser
from jointnmt.text.pieces import SPACE, BytePairs, Merges, OwnPieces, Vocabulary, compact, read_vocabulary
from jointnmt.text.preparation import Preparation, divided
from jointnmt.text.special import SPECIAL_PIECES, unk_id
from jointnmt.text.tags import check_tag, split_tag

_UNSEEN = frozenset(range(len(SPECIAL_PIECES))) - {unk_id}
MOST_REMEMBERED, LONGEST_REMEMBERED = 2**16, 64
"""Words of which a segmenter remembers the pieces, and the characters of the longest, so that no text fills memory."""

_SETTINGS, _JOINT, _SOURCE, _TARGET = "segmentation.json", "joint.json", "source.json", "target.json"
_OWN = {side: f"{side}.pieces" for side in ("source", "target")}
"""The pieces that a side's training text has, each with its count, as `subword-nmt get-vocab` writes them."""
_TRUECASE = {side: f"{side}.truecase" for side in ("source", "target")}
"""Models of truecasing, in the format of Moses."""
_NEWER = (
    *("split_punctuation", "normalize_punctuation", "tags"),
    *("num_merges", "vocabulary_threshold", "truecase"),
)
"""Settings that are newer than stores that may be in the cache, which know them only by their absence."""
_FILES = (_SETTINGS, _JOINT, _SOURCE, _TARGET, *_OWN.values(), *_TRUECASE.values())


class SegmentationConfig(Config):
    """How text is segmented."""

    kind: Literal["bpe", "unigram", "word"] = Field("bpe", description="byte-pair encoding, unigram, or whole words")
    joint: bool | Literal["merges"] = Field(
        True,
        description="one vocabulary for both sides; false: one for each; `merges`: BPE is learnt from both together, "
        "and the vocabulary of each has the pieces that its text has",
    )
    vocabulary_size: int = Field(
        10_000, ge=8, le=100_000_000, description="most pieces, special ones included; of the source, if not joint"
    )
    num_merges: int | None = Field(
        None,
        ge=1,
        le=100_000_000,
        description="of joint BPE, in place of `vocabulary_size`: characters are counted apart, as papers do",
    )
    vocabulary_threshold: int = Field(
        0,
        ge=0,
        le=10**9,
        description="of joint BPE: how often a side's text must have a piece; others are cut into smaller ones there",
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
    truecase: bool = Field(
        False, description="case of words as within sentences, by a Moses model; undone on output; wants tokens"
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
    def _merges_are_of_joint_bpe(self) -> Self:
        for name, given in (
            ("joint merges", self.joint == "merges"),
            (f"num_merges {self.num_merges}", self.num_merges is not None),
            (f"vocabulary_threshold {self.vocabulary_threshold}", self.vocabulary_threshold > 0),
        ):
            if given and (self.kind != "bpe" or not self.joint):
                raise ValueError(f"{name} needs kind bpe, and joint true or merges")
        return self

    @model_validator(mode="after")
    def _case_is_kept_or_not(self) -> Self:
        if self.truecase and self.lowercase:
            raise ValueError("truecase and lowercase exclude each other")
        return self

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.joint is True

    @property
    def counts_pieces(self) -> bool:
        """Whether segmentation depends on how often each side's text has which pieces."""
        return self.joint == "merges" or self.vocabulary_threshold > 0

    @model_validator(mode="after")
    def _words_keep_their_punctuation(self) -> Self:
        if self.split_punctuation and self.kind == "word":
            raise ValueError("split_punctuation needs kind bpe or unigram: whole words do not tell where a space was")
        return self


class Segmenter:
    """Segments and joins the text of one side; `tags` are those that a text may begin with, as a piece each."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        config: SegmentationConfig,
        language: str,
        tags: Sequence[str] = (),
        truecaser: Truecaser | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """`counts` are of the pieces in the side's training text, if the configuration asks for them."""
        self.config = config
        self.tags = tuple(tags)
        self.language = language
        self.truecaser, self.counts = truecaser, counts
        vocabulary = vocabulary if counts is None else _own_pieces(vocabulary, config, counts)
        self._vocabulary = vocabulary
        self._remembered: dict[str, list[int]] = {}
        self._preparation = Preparation.of(config, language, truecaser)
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
        return self._preparation.undo(words)

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
        return self.config.shared

    @classmethod
    def train(
        cls,
        config: SegmentationConfig,
        source_texts: Iterable[str],
        target_texts: Iterable[str],
        source_language: str,
        target_language: str,
    ) -> Self:
        """Learn the pieces from text; memory grows with the number of distinct words.

        The texts are read once, as streams; for truecasing and for `num_merges`, they are kept in a temporary file.

        Raises:
            ConfigurationError: if the vocabulary is too small for the text's characters.
            DataError: if there is no text.
            JointNMTError: from reading the texts.
            MissingPackageError: if an extra, `train` or `moses`, is not installed.
        """
        from jointnmt.text.learning import learn, most_pieces

        source = _TrainingText(config, source_language, source_texts, config.tags)
        target = _TrainingText(config, target_language, target_texts)
        if config.joint:
            size = most_pieces(config, chain(source, target))
            vocabularies = [learn(config, chain(source.counted(), target.counted()), size)] * 2
        else:
            target_size = config.target_vocabulary_size or config.vocabulary_size
            without = config.model_copy(update={"tags": ()})
            vocabularies = [learn(config, source, config.vocabulary_size), learn(without, target, target_size)]
        return cls(
            *(text.segmenter(vocabulary) for text, vocabulary in zip((source, target), vocabularies, strict=True))
        )

    def save(self, directory: Path) -> None:
        """Write the vocabularies and the settings into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = {"config": self.config.plain(), "languages": [self.source.language, self.target.language]}
        files = {_SETTINGS: json.dumps(settings, indent=2) + "\n"}
        sides = {_JOINT: self.source} if self.config.joint else {_SOURCE: self.source, _TARGET: self.target}
        files |= {name: compact(segmenter.to_json()) + "\n" for name, segmenter in sides.items()}
        for side, segmenter in (("source", self.source), ("target", self.target)):
            if segmenter.counts is not None:
                files[_OWN[side]] = "".join(f"{piece} {count}\n" for piece, count in segmenter.counts.items())
            if segmenter.truecaser is not None:
                files[_TRUECASE[side]] = segmenter.truecaser.model
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` has written.

        Raises:
            MissingPackageError: if it needs the extra `moses`, which is not installed.
            ModelError: if a file is missing or damaged.
        """

        def read(name: str) -> str:
            return (directory / name).read_text(encoding="utf-8")

        try:
            settings = json.loads(read(_SETTINGS))
            config = SegmentationConfig.parse(settings["config"], origin=str(directory / _SETTINGS))
            source_language, target_language = settings["languages"]
            names = (_JOINT, _JOINT) if config.joint else (_SOURCE, _TARGET)
            source, target = (read_vocabulary(read(name)) for name in names)
            if missing := [tag for tag in config.tags if tag + SPACE not in source.ids]:
                raise ValueError(f"the vocabulary lacks the tag {missing[0]}")
            counts = {side: _read_counts(read(_OWN[side])) if config.counts_pieces else None for side in _OWN}
            truecasers = {side: Truecaser(read(_TRUECASE[side])) if config.truecase else None for side in _TRUECASE}
        except MissingPackageError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, JointNMTError) as error:
            raise ModelError(
                f"{directory}: the segmentation is missing or damaged ({error}). Copy the whole RUN directory again, "
                "or train again."
            ) from error
        return cls(
            Segmenter(source, config, source_language, config.tags, truecasers["source"], counts["source"]),
            Segmenter(target, config, target_language, (), truecasers["target"], counts["target"]),
        )

    def fingerprint(self) -> str:
        """A hash of everything that affects segmentation."""
        settings = self.config.plain()
        for name in _NEWER:
            if not settings[name]:
                del settings[name]
        parts = [json.dumps(settings, sort_keys=True), self.source.language, self.target.language]
        parts += [self.source.to_json(), self.target.to_json()]
        for side in (self.source, self.target):
            parts += [] if side.counts is None else [json.dumps(side.counts)]
            parts += [] if side.truecaser is None else [side.truecaser.model]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class _TrainingText:
    """The text of one side, prepared, as it is learnt from; read once, and kept in a file if it is needed again."""

    def __init__(
        self, config: SegmentationConfig, language: str, texts: Iterable[str], tags: Sequence[str] = ()
    ) -> None:
        self._config, self._language, self._tags = config, language, tags
        untagged = (split_tag(text, config.tags)[1] for text in texts) if tags else texts
        prepared = map(Preparation.of(config, language).apply, untagged)
        again = config.truecase or config.num_merges is not None
        self._lines: Iterable[str] = KeptLines(prepared) if again else prepared
        self._truecaser = Truecaser.learn(self._lines) if config.truecase else None
        self._words = Counter[str]()

    def __iter__(self) -> Iterator[str]:
        return map(self._truecaser.truecase, self._lines) if self._truecaser else iter(self._lines)

    def counted(self) -> Iterator[str]:
        """The text, whose words are counted if segmentation depends on that."""
        for line in self:
            if self._config.counts_pieces:
                self._words.update(line.split())
            yield line

    def segmenter(self, vocabulary: Vocabulary) -> Segmenter:
        """What cuts this side's text into pieces of the vocabulary, as far as the text has them."""
        counts = self._counts(vocabulary) if self._config.counts_pieces else None
        return Segmenter(vocabulary, self._config, self._language, self._tags, self._truecaser, counts)

    def _counts(self, vocabulary: Vocabulary) -> dict[str, int]:
        """How often the text has which pieces, the most frequent first, and all its characters."""
        found = Counter[str]()
        for word, count in self._words.items():
            for part in divided(word, self._config):
                found.update(dict.fromkeys(part, 0))
                for piece in vocabulary.divide(part):
                    found[vocabulary.pieces[piece]] += count
        return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _own_pieces(vocabulary: Vocabulary, config: SegmentationConfig, counts: Mapping[str, int]) -> OwnPieces:
    """What one side has of a joint BPE: its frequent pieces, its characters, and tags."""
    assert isinstance(vocabulary, BytePairs)
    least = max(1, config.vocabulary_threshold)
    frequent = {piece for piece, count in counts.items() if count >= least or len(piece) == 1}
    return OwnPieces(vocabulary, frequent | {tag + SPACE for tag in config.tags}, renumbered=not config.shared)


def _read_counts(text: str) -> dict[str, int]:
    """Pieces and their counts, a line each.

    Raises:
        ValueError: if a line is something else.
    """
    pairs = (line.rsplit(" ", 1) for line in text.split("\n") if line)
    return {piece: int(count) for piece, count in pairs}


def hash_files(directory: Path) -> str:
    """SHA-256 of the names and the content of the files that `Segmentation.save` has written.

    Raises:
        ModelError: if there is none, or one cannot be read.
    """
    names = [name for name in _FILES if (directory / name).is_file()]
    digest = hashlib.sha256()
    try:
        for name in names:
            digest.update(f"{name} {hashlib.sha256((directory / name).read_bytes()).hexdigest()}\n".encode())
    except OSError as error:
        raise ModelError(f"{directory}: the segmentation cannot be read: {reason(error)}.") from error
    if _SETTINGS not in names:
        raise ModelError(f"{directory}: the segmentation is missing. Copy the whole RUN directory again.")
    return digest.hexdigest()
