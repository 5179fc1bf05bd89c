"""Learning a vocabulary from text, or making it of given merges, by the library `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from jointnmt.errors import ConfigurationError, DataError, JointNMTError
from jointnmt.extras import extra
from jointnmt.interruption import heeding_signals
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.pieces import MARKS, SPACE, Vocabulary, read_vocabulary
from jointnmt.text.preprocessing import divided
from jointnmt.text.special import SPECIAL_PIECES, unk_id

with extra("train"):
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers


def learn(config: SegmentationConfig, lines: Iterable[str], size: int, key: str = "vocabulary_size") -> Vocabulary:
    """Learn at most `size` pieces from text, without added tokens, so that no text is read as a special piece.

    `key` names the size in messages.

    Raises:
        ConfigurationError: if the vocabulary is too small for the text's characters.
        DataError: if there is no text.
        JointNMTError: from reading the lines.
    """
    model, trainer = _model_and_trainer(config, size)
    tokenizer = _tokenizer(config, model)
    try:
        heeding_signals(lambda: tokenizer.train_from_iterator(lines, trainer))
    except JointNMTError:
        raise  # from reading lines, not from the trainer
    except Exception as error:
        raise ConfigurationError(
            f"segmentation: {config.kind} with {key} {size} cannot be learnt from this text ({error}). Check "
            "that the text is not empty, or choose another size."
        ) from error
    learnt = tokenizer.get_vocab_size() - len(MARKS) - len(config.tags)
    if learnt <= 0:
        raise DataError(
            "segmentation: no pieces can be learnt: the training text is empty or, for words, none occurs "
            f"segmentation.min_frequency={config.min_frequency} times."
        )
    marks = tokenizer.get_vocab_size() - learnt
    if learnt + marks > size:
        raise ConfigurationError(
            f"segmentation.{key}: {size} is too small: {marks} special pieces and "
            f"the text's {learnt} distinct characters must fit. Raise it, or lower-case the text."
        )
    values = _settled(json.loads(tokenizer.to_str()), len(MARKS) + len(config.tags))
    return read_vocabulary(json.dumps(_with_merges(values, config.num_merges)))


def vocabulary_of_merges(
    config: SegmentationConfig, merges: Sequence[tuple[str, str]], letters: Iterable[str]
) -> Vocabulary:
    """The vocabulary of given merges: letters and everything that is merged; a space mark ends words."""
    special = [SPACE + name for name in (*SPECIAL_PIECES, *config.tags)]
    single = {piece for merge in merges for piece in merge if len(piece.removesuffix(SPACE)) == 1}
    pieces = dict.fromkeys([*special, *sorted(single.union(letters)), *(left + right for left, right in merges)])
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    model = models.BPE(vocabulary, [*merges], unk_token=special[unk_id], end_of_word_suffix=SPACE)
    tokenizer = _tokenizer(config, model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return read_vocabulary(tokenizer.to_str())


def most_pieces(config: SegmentationConfig, lines: Iterable[str]) -> int:
    """The vocabulary size as configured; with `num_merges`, merges plus characters of the text, which is read."""
    if config.num_merges is None:
        return config.vocabulary_size
    words = {word for line in lines for word in line.split()}
    letters = {letter for word in words for part in divided(word, config) for letter in part}
    return len(MARKS) + len(config.tags) + len(letters) + config.num_merges


def _tokenizer(config: SegmentationConfig, model: Any) -> Tokenizer:
    """The model with its pre-tokenisation, which `Segmenter` does by itself."""
    tokenizer = Tokenizer(model)
    steps = [normalizers.NFC(), normalizers.Replace(SPACE, "_")]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()] if config.lowercase else steps)
    words = config.kind == "word"
    divisions: list[Any] = [pre_tokenizers.WhitespaceSplit() if words else pre_tokenizers.Metaspace(SPACE)]
    if config.split_punctuation:
        divisions.append(pre_tokenizers.Punctuation("isolated"))
    if config.split_digits:
        divisions.append(pre_tokenizers.Split(Regex(r"\p{Nd}"), "isolated"))
    tokenizer.pre_tokenizer = divisions[0] if len(divisions) == 1 else pre_tokenizers.Sequence(divisions)
    return tokenizer


def _model_and_trainer(config: SegmentationConfig, size: int) -> tuple[Any, Any]:
    unknown = MARKS[unk_id]
    special = [*MARKS, *(tag + SPACE for tag in config.tags)]
    common: dict[str, Any] = {"vocab_size": size, "special_tokens": special, "show_progress": False}
    if config.kind == "bpe":
        return models.BPE(unk_token=unknown), trainers.BpeTrainer(min_frequency=config.min_frequency, **common)
    if config.kind == "unigram":
        return models.Unigram(), trainers.UnigramTrainer(unk_token=unknown, **common)
    return models.WordLevel(unk_token=unknown), trainers.WordLevelTrainer(min_frequency=config.min_frequency, **common)


def _with_merges(values: dict[str, Any], most: int | None) -> dict[str, Any]:
    """A BPE limited to so many merges, without pieces that only later merges produce.

    The trainer, which counts pieces, learns more merges if two of them produce the same piece.
    """
    merges = values["model"].get("merges", [])
    if most is None or len(merges) <= most:
        return values
    kept, left_out = ([left + right for left, right in part] for part in (merges[:most], merges[most:]))
    gone = set(left_out) - set(kept)
    pieces = [piece for piece in values["model"]["vocab"] if piece not in gone]
    return values | {
        "model": values["model"] | {"merges": merges[:most], "vocab": dict(zip(pieces, count(), strict=False))}
    }


def _settled(values: dict[str, Any], special: int) -> dict[str, Any]:
    """A freshly trained tokenizer, made independent of the order in which threads add up.

    The first `special` pieces stay in place.

    This concerns unigram alone. Its scores, log-probabilities, differ in their last digits from one training to the
    next, so four decimals are kept. The characters that it keeps only to cover the text get the lowest score plus a
    multiple of 0.0001 in random order, so all of them get the lowest score.
    """
    if values["model"]["type"] == "Unigram":
        marks, learnt = values["model"]["vocab"][:special], values["model"]["vocab"][special:]
        lowest = min(score for _, score in learnt)
        almost = lowest + 0.0001 * sum(len(piece) == 1 for piece, _ in learnt)
        scores = {piece: lowest if len(piece) == 1 and score < almost else score for piece, score in learnt}
        settled = sorted((-round(score, 4), piece) for piece, score in scores.items())
        values["model"]["vocab"] = [*marks, *([piece, -cost] for cost, piece in settled)]
    return values
