"""Sizes of model and training for a corpus and a machine: pure functions of a few numbers.

The measurements on the bundled corpus, with commands and hardware, are in `docs/own-text.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jointnmt.config import merged
from jointnmt.models import FAMILIES
from jointnmt.training.precision import faster_precision

PlannedFamily = Literal["transformer", "reformer-base", "reformer-fast"]

WARMUP_SHARE = 10
"""Inverse of the warm-up's share of the updates."""

FEWEST_PIECES, WORDS_A_PIECE = 500, 8
"""Fewest pieces of a vocabulary; words of the text for each piece."""
PIECES_BESIDE_CHARACTERS = 300
"""Fewest pieces of a vocabulary besides those of single characters."""

VALIDATIONS = 12
"""Number of validations over the whole training; each translates some hundred sentences."""

PATIENCE = 4
"""Validations without improvement before stopping: a third of the training, more than the warm-up."""

LONGER, DROPOUT_OF_LONGER = 2.5, 0.1
"""Passes of a longer training, relative to the usual ones, and its least dropout."""

MOST_TRANSLATED = 500
"""Most validation sentences that are translated for BLEU; more would cost time without much precision gained."""

LONGEST = 256
"""Most pieces of a sentence in a recipe, as the memory of attention grows with their square."""

LITTLE_MEMORY = 4.0
"""GiB of memory below which an update is computed in several batches."""


@dataclass(frozen=True)
class CorpusCounts:
    """Counts of the training text that a recipe depends on."""

    pairs: int
    words: int
    """Words of the target side; characters in languages without spaces."""
    pieces: int
    """Pieces of the target side, end marks and copies included."""
    longest: int
    """Pieces of the longest sentence of either side, end mark included."""
    characters: int = 0
    """Distinct characters of both sides."""
    unknown: float = 0.0
    """Share of the pieces of both sides that are unknown."""


@dataclass(frozen=True)
class Machine:
    """Properties of the computer that a recipe depends on; rates are measured (`planning.speed`)."""

    cores: int
    gpu: str | None = None
    """Name of a GPU that torch can use."""
    memory: float | None = None
    """GiB of main memory; None: unknown."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Target pieces a second in training, by precision; empty: not measured yet."""

    @property
    def precision(self) -> str:
        """The precision that trains fastest here; float32 if nothing has been measured."""
        return faster_precision(self.rates)


@dataclass(frozen=True)
class ModelSize:
    """Sizes and rates for corpora up to a number of words."""

    words: float
    """Most words of the target side; larger corpora take the next size."""
    vocabulary: int
    width: int
    """Embedding size E; feed-forward blocks are four times as wide."""
    heads: int
    layers: int
    """Layers of the encoder, and of the decoder."""
    dropout: float
    smoothing: float
    passes: float
    """Epochs, in which each sentence is seen once."""
    peak_rate: float
    update_pieces: int

    def trained_longer(self) -> ModelSize:
        """The same model in `LONGER` times as many passes, with some dropout."""
        return replace(self, passes=LONGER * self.passes, dropout=max(self.dropout, DROPOUT_OF_LONGER))


SIZES = (
    ModelSize(48e3, 2000, 128, 4, 3, 0.3, 0.1, 70, 0.003, 1024),
    ModelSize(160e3, 3000, 128, 4, 3, 0.3, 0.1, 30, 0.003, 1024),
    ModelSize(600e3, 4000, 128, 4, 4, 0.2, 0.1, 15, 0.003, 1024),
    ModelSize(4e6, 8000, 128, 4, 4, 0.0, 0.1, 6, 0.003, 1024),
    ModelSize(20e6, 16_000, 256, 4, 6, 0.1, 0.1, 6, 0.0015, 4096),
    ModelSize(math.inf, 32_000, 512, 8, 6, 0.1, 0.1, 4, 0.0007, 16_384),
)
"""The first and the fourth size were measured; the two between them are interpolated. The last two are from the
literature, with fewer epochs: the usual IWSLT models, and the base model of Vaswani et al. (2017)."""
DROPOUT_OF_REFORMERS = 0.1
"""Most dropout of Reformers: with 10,000 pairs, 0.3 costs Reformer-fast 4 BLEU, and the Transformer nothing."""


def size_for(words: int, characters: int = 0) -> ModelSize:
    """The size for a corpus of so many target words and distinct characters.

    The smallest corpora get fewer pieces, so that each is seen often; scripts with many characters get more, as each
    character is a piece.
    """
    size = next(size for size in SIZES if words <= size.words)
    most = max(FEWEST_PIECES, words // WORDS_A_PIECE // 100 * 100)
    fewest = math.ceil((characters + PIECES_BESIDE_CHARACTERS) / 100) * 100
    return replace(size, vocabulary=max(fewest, min(size.vocabulary, most)))


@dataclass(frozen=True)
class Plan:
    """A training for a corpus on a machine."""

    size: ModelSize
    updates: int
    values: Mapping[str, Any]
    """The recipe, except its name and its data."""

    @property
    def pieces(self) -> int:
        """Number of target pieces that the training computes."""
        return self.updates * int(self.values["batches"]["update_tokens"])


def plan(corpus: CorpusCounts, machine: Machine, family: PlannedFamily = "transformer", longer: bool = False) -> Plan:
    """The training for a corpus and a machine.

    Args:
        corpus: counts of the training text alone, without held-out text.
        machine: determines precision and batches.
        family: family of the model. The Transformer is the default: with 160,000 pairs it reached BLEU 48.0,
            Reformer-fast 47.6 in two to five times the time (docs/results.md).
        longer: train for longer, for better translations.

    Raises:
        ValueError: if there are no pairs.
    """
    if corpus.pairs < 1 or corpus.words < 1:
        raise ValueError("there is no text to learn from")
    size = size_for(corpus.words, corpus.characters)
    if longer:
        size = size.trained_longer()
    updates = max(100, round(size.passes * corpus.pieces / size.update_pieces))
    updates = math.ceil(updates / VALIDATIONS) * VALIDATIONS  # so that the last update is validated
    longest = max_length(corpus)
    values: dict[str, Any] = {
        "segmentation": {
            "kind": "bpe",
            "joint": True,
            "vocabulary_size": size.vocabulary,
            "split_punctuation": True,
            "split_digits": True,
        },
        "model": _model(family, size) | {"max_length": longest},
        "batches": _batches(size, machine, longest, family),
        "training": _training(size, updates, machine.precision),
        "validation": {
            "every_updates": updates // VALIDATIONS,
            "metric": "bleu",
            "bleu_every": 1,
            "bleu_sentences": MOST_TRANSLATED,
            "patience": PATIENCE,
        },
        "search": {"beam_size": 5, "length_penalty": 1.0},
    }
    return Plan(size, updates, values)


def max_length(corpus: CorpusCounts) -> int:
    """Most pieces of a sentence in the recipe, end mark included: some more than the training text has."""
    return min(LONGEST, max(64, _rounded(1.25 * corpus.longest)))


def _model(family: PlannedFamily, size: ModelSize) -> dict[str, Any]:
    shared = {
        "family": family,
        "embed_dim": size.width,
        "num_heads": size.heads,
        "ffn_dim": 4 * size.width,
        "dropout": size.dropout if family == "transformer" else min(size.dropout, DROPOUT_OF_REFORMERS),
        "embeddings": "all",
    }
    # L + 1 grid layers of 8 E^2 + 4 EF weights have as many as L layers on each side, 28 L E^2, if F is this wide.
    grid_ffn = size.width * (7 * size.layers / (size.layers + 1) - 2)
    stacks: dict[PlannedFamily, dict[str, int]] = {
        "transformer": {"encoder_layers": size.layers, "decoder_layers": size.layers},
        "reformer-base": {"num_layers": size.layers + 1, "ffn_dim": 16 * round(grid_ffn / 16)},
        "reformer-fast": {"prenet_layers": size.layers, "num_layers": max(1, size.layers - 1)},
    }
    return merged(shared, stacks[family])


def _batches(size: ModelSize, machine: Machine, longest: int, family: PlannedFamily) -> dict[str, int]:
    """Sizes of updates, which are equal on every machine, as quality depends on them, and of batches, by its memory."""
    little = machine.gpu is None and machine.memory is not None and machine.memory < LITTLE_MEMORY
    pieces = max(longest, size.update_pieces // 2 if little else size.update_pieces)
    if machine.gpu is None:
        pieces = min(pieces, max(longest, 4096))
    update = max(pieces, size.update_pieces)
    batches = {"max_tokens": pieces, "update_tokens": update}
    if FAMILIES[family].config.is_grid:
        batches["max_cells"] = max(longest * longest, 16 * pieces)
    if machine.gpu:
        batches["overhead_cells"] = 50_000  # a GPU has cells to spare: fewer, fuller batches
    return batches


def _training(size: ModelSize, updates: int, precision: str) -> dict[str, Any]:
    warmup = math.ceil(updates / WARMUP_SHARE)
    return {
        "max_updates": updates,
        "precision": precision,
        "label_smoothing": size.smoothing,
        "optimizer": {"betas": [0.9, 0.98]},
        "schedule": {"peak_rate": size.peak_rate, "warmup_steps": warmup, "zero_at": updates},
        "average_best": 1,
        "keep_best": 1,
    }


def _rounded(pieces: float) -> int:
    """Up to the next multiple of 16."""
    return 16 * math.ceil(pieces / 16)
