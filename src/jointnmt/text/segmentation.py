"""Segmentation of raw text into pieces and back: BPE, unigram or words, by the `tokenizers` library.

Text is normalised first: white space is collapsed, characters are composed (NFC) and, if configured, punctuation is
normalised and text tokenised, both by the rules of Moses, and lower-cased. Decoding undoes segmentation and Moses
tokenisation, not lower-casing nor the normalisation of punctuation. For BPE and unigram,
decoding the pieces of a normalised text gives exactly that text, if training has seen its characters; an unseen
character becomes `<unk>`, for unigram one for several in a row. Pieces and ids depend on text and configuration only,
not on the number of threads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from jointnmt.config import Config
from jointnmt.errors import ConfigurationError, DataError, JointNMTError, ModelError, reason
from jointnmt.interruption import heeding_signals
from jointnmt.text.moses import Moses, PunctuationNormalizer
from jointnmt.text.special import SPECIAL_PIECES, unk_id
from jointnmt.text.tags import check_tag, split_tag

SPACE = "▁"
"""The space mark of pieces (U+2581); in text, this character is replaced by an underscore."""

_MARKS = tuple(piece + SPACE for piece in SPECIAL_PIECES)
"""The special pieces as stored in the vocabulary, with an ending that no piece of text has."""

_UNSEEN = frozenset(range(len(SPECIAL_PIECES))) - {unk_id}
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
        self, tokenizer: Tokenizer, config: SegmentationConfig, language: str, tags: Sequence[str] = ()
    ) -> None:
        self.config = config
        self.tags = tuple(tags)
        self.language = language
        self._tokenizer = tokenizer
        self._preparation = Preparation.of(config, language)
        ordinary = range(len(SPECIAL_PIECES), tokenizer.get_vocab_size())
        marked = {tag + SPACE: tag for tag in config.tags}
        names = (str(tokenizer.id_to_token(i)) for i in ordinary)
        self._pieces = (*SPECIAL_PIECES, *(marked.get(name, name) for name in names))
        self._ids_of_tags = {tag: self._pieces.index(tag) for tag in self.tags}
        marks = range(len(_MARKS), min(len(_MARKS) + len(marked), len(self._pieces)))
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
        """`encode_ids` of many texts, in several threads.

        Raises:
            DataError: if one of them is not valid Unicode.
        """
        divided = [split_tag(text, self.tags) if self.tags else ("", text) for text in texts]
        prepared = [self._preparation.apply(text) for _, text in divided]
        try:
            found = [_without_marks(encoding.ids) for encoding in self._tokenizer.encode_batch_fast(prepared)]
        except TypeError as error:
            wrong = next((text for text in prepared if any("\ud800" <= letter <= "\udfff" for letter in text)), "")
            raise DataError(f"{wrong[:80]!r}: holds an unpaired surrogate, so it is not text. Correct it.") from error
        return [
            [self._ids_of_tags[tag], *ids] if tag and ids else ids for (tag, _), ids in zip(divided, found, strict=True)
        ]

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return dict(self._tokenizer.get_vocab())

    def begins_word(self, piece_id: int) -> bool:
        """Whether a piece of BPE is the first one of a word: merges do not reach across."""
        return self._pieces[piece_id].startswith(SPACE)

    def letters(self, piece_id: int) -> tuple[int, ...]:
        """The pieces of single characters that BPE builds a piece from; a special piece or a tag stays as it is."""
        piece = self._pieces[piece_id]
        whole = piece_id < len(SPECIAL_PIECES) or piece in self.config.tags
        return (piece_id,) if whole else tuple(map(self._vocabulary.__getitem__, piece))

    def merges(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Of BPE: pairs of pieces, with the rank of their merge, lower ones come first, and the piece they become."""
        vocabulary = self._vocabulary
        return {
            (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right])
            for rank, (left, right) in enumerate(json.loads(self._tokenizer.to_str())["model"]["merges"])
        }

    def decode(self, pieces: Sequence[str]) -> str:
        """The text of pieces."""
        words = pieces if self.config.kind == "word" else "".join(pieces).replace(SPACE, " ").split()
        moses = self._preparation.moses
        return moses.detokenize(words) if moses else " ".join(words)

    def decode_ids(self, ids: Sequence[int]) -> str:
        """The text of ids; special ids and tags are dropped, unknown pieces appear as `<unk>`."""
        return self.decode([self.piece(i) for i in ids if i not in self._unwritten])

    def to_json(self) -> str:
        """The tokenizer with its vocabulary, in the format of `tokenizers`."""
        return str(self._tokenizer.to_str(pretty=True))


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
        """
        untagged = (split_tag(text, config.tags)[1] for text in source_texts)
        source_lines = map(Preparation.of(config, source_language).apply, untagged)
        target_lines = map(Preparation.of(config, target_language).apply, target_texts)
        if config.joint:
            source = target = _learn(config, chain(source_lines, target_lines), config.vocabulary_size)
        else:
            source = _learn(config, source_lines, config.vocabulary_size)
            without = config.model_copy(update={"tags": ()})
            target = _learn(without, target_lines, config.target_vocabulary_size or config.vocabulary_size)
        return cls(Segmenter(source, config, source_language, config.tags), Segmenter(target, config, target_language))

    def save(self, directory: Path) -> None:
        """Write the vocabularies and the settings into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = {"config": self.config.plain(), "languages": [self.source.language, self.target.language]}
        (directory / _SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        sides = {_JOINT: self.source} if self.joint else {_SOURCE: self.source, _TARGET: self.target}
        for name, segmenter in sides.items():
            (directory / name).write_text(_compact(segmenter.to_json()) + "\n", encoding="utf-8")

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
            source, target = (_from_json((directory / name).read_text(encoding="utf-8")) for name in names)
            if missing := [tag for tag in config.tags if source.token_to_id(tag + SPACE) is None]:
                raise ValueError(f"the vocabulary lacks the tag {missing[0]}")
        except Exception as error:  # tokenizers raises plain Exception
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


def _compact(tokenizer: str) -> str:
    """The JSON of a tokenizer at less than half its length: without white space, and each merge one string.

    `tokenizers` reads merges in both forms. No piece holds a space: text is divided at white space first.
    """
    values = json.loads(tokenizer)
    if merges := values["model"].get("merges"):
        values["model"]["merges"] = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


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


def _without_marks(ids: list[int]) -> list[int]:
    """Ids of text with unknown for a special piece, which text can hold if it was saved without `_MARKS`' endings."""
    return ids if _UNSEEN.isdisjoint(ids) else [unk_id if i in _UNSEEN else i for i in ids]


def _learn(config: SegmentationConfig, lines: Iterator[str], size: int) -> Tokenizer:
    """A trained tokenizer without added tokens, so that no text is read as a special piece."""
    model, trainer = _model_and_trainer(config, size)
    tokenizer = Tokenizer(model)
    steps = [normalizers.NFC(), normalizers.Replace(SPACE, "_")]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()] if config.lowercase else steps)
    words = config.kind == "word"
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit() if words else pre_tokenizers.Metaspace(SPACE)
    if config.split_punctuation:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [tokenizer.pre_tokenizer, pre_tokenizers.Punctuation("isolated")]
        )
    try:
        heeding_signals(lambda: tokenizer.train_from_iterator(lines, trainer))
    except JointNMTError:
        raise  # from reading lines, not from the trainer
    except Exception as error:
        raise ConfigurationError(
            f"segmentation: {config.kind} with vocabulary_size {size} cannot be learnt from this text ({error}). Check "
            "that there is text, and choose another size."
        ) from error
    learnt = tokenizer.get_vocab_size() - len(_MARKS) - len(config.tags)
    if learnt <= 0:
        raise DataError(
            "segmentation: there is nothing to learn it from: the training text is empty, or, for words, has none that "
            f"occurs segmentation.min_frequency={config.min_frequency} times."
        )
    marks = tokenizer.get_vocab_size() - learnt
    if learnt + marks > size:
        raise ConfigurationError(
            f"segmentation.vocabulary_size: {size} is too small: {marks} special pieces and "
            f"the text's {learnt} distinct characters must fit. Raise it, or lower-case the text."
        )
    return _from_json(_settle(tokenizer.to_str(), len(_MARKS) + len(config.tags)))


def _model_and_trainer(config: SegmentationConfig, size: int) -> tuple[Any, Any]:
    unknown = _MARKS[unk_id]
    special = [*_MARKS, *(tag + SPACE for tag in config.tags)]
    common: dict[str, Any] = {"vocab_size": size, "special_tokens": special, "show_progress": False}
    if config.kind == "bpe":
        return models.BPE(unk_token=unknown), trainers.BpeTrainer(min_frequency=config.min_frequency, **common)
    if config.kind == "unigram":
        return models.Unigram(), trainers.UnigramTrainer(unk_token=unknown, **common)
    return models.WordLevel(unk_token=unknown), trainers.WordLevelTrainer(min_frequency=config.min_frequency, **common)


def _settle(text: str, special: int) -> str:
    """A freshly trained tokenizer's JSON without what depends on the order in which threads add up.

    The first `special` pieces stay where they are.

    That concerns unigram alone. Its scores, log-probabilities, differ in their last digits from one training to the
    next: four decimals are kept. And the characters that it keeps only to cover the text get the lowest score and a
    multiple of 0.0001 in no certain order: they all get the lowest.
    """
    values = json.loads(text)
    if values["model"]["type"] == "Unigram":
        marks, learnt = values["model"]["vocab"][:special], values["model"]["vocab"][special:]
        lowest = min(score for _, score in learnt)
        almost = lowest + 0.0001 * sum(len(piece) == 1 for piece, _ in learnt)
        scores = {piece: lowest if len(piece) == 1 and score < almost else score for piece, score in learnt}
        settled = sorted((-round(score, 4), piece) for piece, score in scores.items())
        values["model"]["vocab"] = [*marks, *([piece, -cost] for cost, piece in settled)]
    return json.dumps(values)


def _from_json(text: str) -> Tokenizer:
    """A tokenizer from its JSON, with nothing that reads special pieces out of text."""
    values = json.loads(text)
    values["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(values))
    ids = range(tokenizer.get_vocab_size())
    names = [str(tokenizer.id_to_token(i)).removesuffix(SPACE) for i in ids[: len(SPECIAL_PIECES)]]
    if tuple(names) != SPECIAL_PIECES or any(tokenizer.id_to_token(i) is None for i in ids):
        raise ValueError(f"the vocabulary should begin with {', '.join(SPECIAL_PIECES)} and have no gaps")
    return tokenizer
