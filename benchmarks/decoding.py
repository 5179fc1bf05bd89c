"""Decoding: the package's own translator, whose translations have prescribed lengths.

A model with random weights hardly ever ends a sentence by itself, so the end mark is forbidden before a sentence's
length and forced there. All else is the search's own choice, so that hypotheses branch and are reordered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from benchmarks.counting import decoding_operations
from benchmarks.processes import Work
from benchmarks.sizes import SIZES, model_config, with_shortcuts
from benchmarks.training import SEED, Implementation
from jointnmt.data.batches import Lengths
from jointnmt.experiment import Experiment
from jointnmt.models import build_model
from jointnmt.models.layers.shortcut import ShortcutKind
from jointnmt.models.reference import Reference
from jointnmt.search import SearchConfig
from jointnmt.search.rules import Rules
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.special import SPECIAL_PIECES, eos_id, pad_id
from jointnmt.translator import TranslationOptions, Translator

NO_LIMIT = 10**9
"""No limit of cells: a batch is what the benchmark passes at once."""


@dataclass(frozen=True, eq=False)
class DecodingCase:
    """The translation work of one process."""

    family: str
    size: str
    precision: str
    implementation: Implementation
    source: tuple[Lengths, ...] = field(repr=False)
    """For each batch of a run, tokens of each sentence, end mark included."""
    target: tuple[Lengths, ...] = field(repr=False)
    """For each batch, tokens of each translation, end mark included."""
    beam_size: int = 5
    device: str = "cpu"
    """cpu or cuda."""
    shortcuts: ShortcutKind | None = None
    """Lexical shortcuts."""

    def __call__(self) -> Decoding:
        """Build the subject."""
        if self.implementation == "ctranslate2":
            from benchmarks.engines import CTranslate2Decoding

            return CTranslate2Decoding(self)
        return Decoding(self)


class Decoding:
    """Translates the same sentences in every run, batch by batch."""

    late_bytes = 0
    warm_up_runs = 1

    def __init__(self, case: DecodingCase) -> None:
        self.case, self.device = case, case.device
        self.vocabulary = SIZES[case.size].vocabulary
        self.config = model_config(case.family, case.size, **with_shortcuts(case.shortcuts))
        segmentation = word_segmentation(self.vocabulary)
        torch.manual_seed(SEED)
        model = self.model = build_model(self.config, self.vocabulary, self.vocabulary).to(case.device)
        precision: Any = case.precision
        translator = Translator(
            Reference(self.config, dict(model.named_parameters())) if case.implementation == "reference" else model,
            segmentation,
            _experiment(self.config.plain()),
            precision,
            NO_LIMIT,
        )
        generator = np.random.default_rng(SEED)
        drawn = [
            [generator.integers(len(SPECIAL_PIECES), self.vocabulary, length - 1).tolist() for length in batch]
            for batch in case.source
        ]
        self.texts = [[segmentation.source.decode_ids(ids) for ids in batch] for batch in drawn]
        lengths = {
            (*ids, eos_id): int(length)
            for batch, of_batch in zip(drawn, case.target, strict=True)
            for ids, length in zip(batch, of_batch, strict=True)
        }
        longest = max(lengths.values())
        search = SearchConfig(beam_size=case.beam_size, max_length_factor=0, max_length_offset=longest)
        self.translator, self.options, self._lengths = translator, TranslationOptions(search=search), lengths

    def run(self) -> None:
        """Translate all batches."""
        with lengths_given(self._lengths):
            self.found = [self.translator.translate(batch, self.options) for batch in self.texts]

    def work(self) -> Work:
        """See `Subject`."""
        pairs = list(zip(self.case.source, self.case.target, strict=True))
        source, target = (np.concatenate(side).astype(np.int64) for side in zip(*pairs, strict=True))
        operations = decoding_operations(self.config, self.vocabulary, source, target, self.case.beam_size)
        padded = [int(lengths.max() * of_target.sum()) for lengths, of_target in pairs]
        return Work(
            operations=float(np.sum(operations)),
            sentences=len(source),
            cells=int((source * target).sum()),
            padded_cells=sum(padded),
            largest_batch=max(padded),
        )


def word_segmentation(vocabulary: int) -> Segmentation:
    """Words `w4`, `w5`, ... as pieces: segmentation that costs next to nothing."""
    config = SegmentationConfig(kind="word", vocabulary_size=max(vocabulary, 8), min_frequency=1)
    words = " ".join(f"w{number}" for number in range(len(SPECIAL_PIECES), vocabulary))
    return Segmentation.train(config, [words], [], "de", "en")


def _experiment(model: dict[str, Any]) -> Experiment:
    files = [{"source": "none", "target": "none"}]
    values = {
        "name": "benchmark",
        "data": {"source_language": "de", "target_language": "en", "train": files},
        "segmentation": {"kind": "word"},
        "model": model,
        "training": {},
    }
    return Experiment.parse(values, origin="benchmark")


@contextmanager
def lengths_given(lengths: Mapping[tuple[int, ...], int]) -> Iterator[None]:
    """Context in which each translation has a given number of tokens, end mark included, by its source's ids."""
    rules_of = Rules.of

    def given(source: Int[Tensor, "B S"], *arguments: Any) -> Rules:
        own = rules_of(source, *arguments)
        limits = tuple(lengths[tuple(id for id in ids if id != pad_id)] for ids in source.tolist())
        return replace(own, limits=limits, banned=(*own.banned, eos_id))  # at the limit it changes nothing

    logging.disable(logging.WARNING)  # translations cut there
    try:
        with patch.object(Rules, "of", given):
            yield
    finally:
        logging.disable(logging.NOTSET)
