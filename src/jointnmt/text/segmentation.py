"""Segmentation of raw text into pieces and back: BPE, unigram or words.

Text is normalised first: white space is collapsed, characters are composed (NFC) and, if configured, punctuation is
normalised, text tokenised and truecased, all by the rules of Moses, and lower-cased. Decoding undoes segmentation,
Moses tokenisation and truecasing, not lower-casing nor the normalisation of punctuation. For BPE and unigram, decoding
the pieces of a normalised text gives exactly that text, if training has seen its characters; an unseen character
becomes `<unk>`, for unigram one for several in a row. Pieces and ids depend on text and configuration only, and if
merges are given, on these (`text.subword_nmt`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Self

from jointnmt.errors import DataError, JointNMTError, MissingPackageError, ModelError, reason
from jointnmt.files import hash_file
from jointnmt.text.config import FILES, SegmentationConfig
from jointnmt.text.kept_lines import KeptLines
from jointnmt.text.languages import base_language
from jointnmt.text.moses import Truecaser
from jointnmt.text.pieces import Vocabulary, compact, letters_of, read_vocabulary
from jointnmt.text.preprocessing import TextPreprocessor, divided
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.subword_nmt import read_codes, read_counts
from jointnmt.text.tags import split_tag

_SETTINGS, _JOINT, _SOURCE, _TARGET = "segmentation.json", "joint.json", "source.json", "target.json"
_RULES = "rules"
"""Key for the languages of the Moses rules, if they differ from those of the text, as without a region."""
_OWN = {side: f"{side}.pieces" for side in ("source", "target")}
"""Files of the pieces in a side's training text with their counts, in the format of `subword-nmt get-vocab`."""
_TRUECASE = {side: f"{side}.truecase" for side in ("source", "target")}
"""Files of truecasing models, in the format of Moses."""
_NEWER = (
    *("split_punctuation", "normalize_punctuation", "tags"),
    *("num_merges", "vocabulary_threshold", "truecase", "split_digits", *FILES.values()),
)
"""Newer settings, left out of fingerprints at their defaults, so that older stores in the cache stay valid."""
_FILES = (_SETTINGS, _JOINT, _SOURCE, _TARGET, *_OWN.values(), *_TRUECASE.values())


class Segmentation:
    """The segmenters of both sides, with one vocabulary if it is joint."""

    def __init__(self, source: Segmenter, target: Segmenter) -> None:
        self.source = source
        self.target = target
        self.config = source.config

    @property
    def languages(self) -> tuple[str, str]:
        """Language codes of source and target."""
        return self.source.language, self.target.language

    @property
    def rules(self) -> tuple[str, str]:
        """The languages of the Moses rules for source and target."""
        return self.source.rules, self.target.rules

    @classmethod
    def train(
        cls,
        config: SegmentationConfig,
        source_texts: Iterable[str],
        target_texts: Iterable[str],
        source_language: str,
        target_language: str,
    ) -> Self:
        """Learn the pieces from text, or take those of given merges; memory grows with the number of distinct words.

        The texts are read once, as streams; for truecasing and for `num_merges`, they are kept in a temporary file.

        Raises:
            ConfigurationError: if the vocabulary is too small for the text's characters.
            DataError: if there is no text, or a file of given merges is not one of subword-nmt.
            JointNMTError: from reading the texts.
            MissingPackageError: if an extra, `train` or `moses`, is not installed.
        """
        from jointnmt.text.learning import learn, most_pieces

        given = None if config.codes is None else _GivenMerges(config)
        source = _TrainingText(config, source_language, source_texts, config.tags)
        target = _TrainingText(config, target_language, target_texts)
        if given is not None:
            vocabularies = given.vocabularies(source, target)
        elif config.joint:
            size = most_pieces(config, chain(source, target))
            vocabularies = [learn(config, chain(source.counted(), target.counted()), size)] * 2
        else:
            size = config.vocabulary_size
            without, key = config.model_copy(update={"tags": ()}), "target_vocabulary_size"
            of_target = (config.target_vocabulary_size, key) if config.target_vocabulary_size else (size,)
            vocabularies = [learn(config, source, size), learn(without, target, *of_target)]
        counts = (None, None) if given is None else given.counts(vocabularies)
        return cls(*map(_TrainingText.segmenter, (source, target), vocabularies, counts))

    def save(self, directory: Path) -> None:
        """Write the vocabularies and the settings into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = {"config": self.config.plain(), "languages": [self.source.language, self.target.language]}
        if self.rules != self.languages:
            settings[_RULES] = list(self.rules)
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
        """Read the files that `save` has written.

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
            source_rules, target_rules = settings.get(_RULES, settings["languages"])
            names = (_JOINT, _JOINT) if config.joint else (_SOURCE, _TARGET)
            source, target = (read_vocabulary(read(name)) for name in names)
            if missing := [tag for tag in config.tags if source.stored(tag) not in source.ids]:
                raise ValueError(f"the vocabulary lacks the tag {missing[0]}")
            counts = {side: _read_counts(read(_OWN[side])) if config.counts_pieces else None for side in _OWN}
            truecasers = {side: Truecaser(read(_TRUECASE[side])) if config.truecase else None for side in _TRUECASE}
            source_preprocessor = TextPreprocessor.of(config, source_rules, truecasers["source"])
            target_preprocessor = TextPreprocessor.of(config, target_rules, truecasers["target"])
        except MissingPackageError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, JointNMTError) as error:
            raise ModelError(
                f"{directory}: the segmentation is missing or damaged ({error}). Copy the whole RUN directory again, "
                "or train again."
            ) from error
        return cls(
            Segmenter(source, config, source_language, config.tags, source_preprocessor, counts["source"]),
            Segmenter(target, config, target_language, (), target_preprocessor, counts["target"]),
        )

    def fingerprint(self) -> str:
        """A hash of everything that affects segmentation."""
        settings = self.config.plain()
        for name in _NEWER:
            if not settings[name]:
                del settings[name]
        parts = [json.dumps(settings, sort_keys=True), self.source.language, self.target.language]
        parts += [] if self.rules == self.languages else self.rules
        parts += [self.source.to_json(), self.target.to_json()]
        for side in (self.source, self.target):
            parts += [] if side.counts is None else [json.dumps(side.counts)]
            parts += [] if side.truecaser is None else [side.truecaser.model]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class _TrainingText:
    """The preprocessed training text of one side; read once, and stored in a file if it is needed again."""

    def __init__(
        self, config: SegmentationConfig, language: str, texts: Iterable[str], tags: Sequence[str] = ()
    ) -> None:
        self._config, self._language, self._tags = config, language, tags
        self._rules = base_language(language) if config.moses or config.normalize_punctuation else language
        untagged = (split_tag(text, config.tags)[1] for text in texts) if tags else texts
        prepared = map(TextPreprocessor.of(config, self._rules).apply, untagged)
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

    def letters(self) -> set[str]:
        """The characters of the text for merges that end words; its words are counted."""
        for line in self:
            self._words.update(line.split())
        words = (part for word in self._words for part in divided(word, self._config, ends_words=True))
        return {letter for word in words for letter in letters_of(word, ends_words=True)}

    def segmenter(self, vocabulary: Vocabulary, given: Mapping[str, int] | None = None) -> Segmenter:
        """The segmenter of this side, restricted to its own pieces if so configured, by the text or given counts."""
        counts = self._counts(vocabulary, given) if self._config.counts_pieces else None
        preprocessor = TextPreprocessor.of(self._config, self._rules, self._truecaser)
        config = self._config.without_files()
        return Segmenter(vocabulary, config, self._language, self._tags, preprocessor, counts)

    def _counts(self, vocabulary: Vocabulary, given: Mapping[str, int] | None) -> dict[str, int]:
        """Frequencies of the pieces in the text, or as given, most frequent first, with all characters of the text."""
        found = Counter[str](given or {})
        for word, count in self._words.items():
            for part in divided(word, self._config, vocabulary.ends_words):
                found.update(dict.fromkeys(vocabulary.letters(part), 0))
                for piece in vocabulary.divide(part) if given is None else ():
                    found[vocabulary.pieces[piece]] += count
        return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


class _GivenMerges:
    """The merges of a configuration, and perhaps the counts of their pieces, by files of subword-nmt."""

    def __init__(self, config: SegmentationConfig) -> None:
        """Read the files.

        Raises:
            DataError: if one cannot be read or is another file.
        """
        self._config = config
        self._merges = [read_codes(path) for path in (config.codes, config.target_codes) if path is not None]
        self._files = [path for path in (config.vocabulary, config.target_vocabulary) if path is not None]
        self._counts = [read_counts(path) for path in self._files]

    def vocabularies(self, source: _TrainingText, target: _TrainingText) -> list[Vocabulary]:
        """The vocabularies of both sides, which are the same if there is one file of codes."""
        from jointnmt.text.learning import vocabulary_of_merges

        known = {piece for counts in self._counts for piece in counts if len(letters_of(piece, ends_words=True)) == 1}
        letters = source.letters(), target.letters()
        if self._config.joint:
            return [vocabulary_of_merges(self._config, self._merges[0], known.union(*letters))] * 2
        without = self._config.model_copy(update={"tags": ()})
        configs = self._config, without
        return [*map(vocabulary_of_merges, configs, self._merges, letters)]

    def counts(self, vocabularies: Sequence[Vocabulary]) -> tuple[Mapping[str, int] | None, ...]:
        """The counts of both sides' pieces; None: not given.

        Raises:
            DataError: if there is a piece that the codes do not make.
        """
        for path, counts, vocabulary in zip(self._files, self._counts, vocabularies, strict=False):
            if other := [piece for piece in counts if piece not in vocabulary.ids]:
                raise DataError(
                    f"{path}: has {len(other):,} pieces that {self._config.codes} does not make, such as {other[0]!r}. "
                    "Give the vocabulary of text that was segmented by these codes."
                )
        return (*self._counts, None, None)[:2]


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
        ModelError: if there are none, or one cannot be read.
    """
    names = [name for name in _FILES if (directory / name).is_file()]
    digest = hashlib.sha256()
    try:
        for name in names:
            digest.update(f"{name} {hash_file(directory / name)}\n".encode())
    except OSError as error:
        raise ModelError(f"{directory}: the segmentation cannot be read: {reason(error)}.") from error
    if _SETTINGS not in names:
        raise ModelError(f"{directory}: the segmentation is missing. Copy the whole RUN directory again.")
    return digest.hexdigest()
