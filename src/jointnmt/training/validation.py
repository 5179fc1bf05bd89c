"""Validation: perplexity, and BLEU or chrF of beam search on raw text."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from jointnmt.data.batch import collate_sources
from jointnmt.data.batches import load
from jointnmt.data.length_buckets import BatchConfig, plan_batches
from jointnmt.data.store import TokenStore
from jointnmt.errors import DataError
from jointnmt.evaluation.likelihood import perplexity
from jointnmt.evaluation.scores import corpus_metrics, corpus_scores
from jointnmt.experiment import ValidationConfig
from jointnmt.models.gates import GateMeans, gate_means, mean_over_sentences, plain_means
from jointnmt.models.interface import AttentionMaps, TranslationModel
from jointnmt.ops.autocast import autocast_to
from jointnmt.ops.out_of_memory import in_parts
from jointnmt.search import SearchConfig, beam_search
from jointnmt.search.rules import target_limit
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.special import num_tokens
from jointnmt.training.loss import cross_entropy_sums
from jointnmt.training.processes import gather, sum_numbers

if TYPE_CHECKING:
    from lightning_fabric import Fabric

GATED_SENTENCES = 32
"""Number of validation sentences that gates are averaged over, one at a time: gates are as large as the grid."""


TELLING = {"bleu": 2.0, "chrf": 15.0}
"""Least score, by metric, that means more than a few common words in the right place.

Unrelated sentences share characters: other references in a random order, or one sentence for all, have 11 to 14 chrF2
and less than 1 BLEU on the test text of Tatoeba, in English and in German.
"""


@dataclass(frozen=True)
class ValidationResult:
    """The measurements of one validation."""

    nll: float
    """Mean negative log-likelihood of a target token, without label smoothing, in nats."""
    seconds: float
    bleu: float | None = None
    signature: str | None = None
    """sacrebleu's signature of BLEU."""
    translations: tuple[str, ...] = ()
    gates: GateMeans = field(default_factory=dict)
    """Mean gates of lexical shortcuts over a few sentences; empty without shortcuts."""
    chrf: float | None = None
    """chrF2; only measured if it is the deciding metric."""
    chrf_signature: str | None = None

    @property
    def perplexity(self) -> float:
        """exp(nll)."""
        return perplexity(self.nll)

    def score(self, metric: str) -> float | None:
        """The value of the deciding metric, higher is better; None if it was not measured this time.

        A model without a finite likelihood has the worst score by any metric. BLEU and chrF below `TELLING` are chance:
        such models are compared by likelihood, and rank below all with a higher BLEU or chrF.
        """
        if not math.isfinite(self.nll):
            return -math.inf
        if metric == "perplexity":
            return -self.nll
        score = self.bleu if metric == "bleu" else self.chrf
        return score if score is None or score >= TELLING[metric] else -self.nll


class Validation:
    """Measures how well a model predicts and translates the validation text.

    The work is distributed over the processes, and all of them get the same result.

    Args:
        fabric: launched fabric.
        store: validation text, segmented and raw.
        segmentation: segmentation of the model.
        config: settings; here, how often and how much to translate, and whether chrF is measured.
        batches: limits of a batch.
        search: settings of beam search for translations.
        precision: precision of the forward pass.

    Raises:
        MissingPackageError: if translations are to be scored, but BLEU's tokeniser for the language is not installed.
    """

    def __init__(
        self,
        fabric: Fabric,
        store: TokenStore,
        segmentation: Segmentation,
        config: ValidationConfig,
        batches: BatchConfig,
        search: SearchConfig,
        precision: str = "float32",
    ) -> None:
        self.fabric, self.segmentation, self.batches, self.search = fabric, segmentation, batches, search
        self.store, self.precision = store, precision
        self.metrics = ("bleu", "chrf") if config.metric == "chrf" else ("bleu",)
        chosen = min(len(store), config.bleu_sentences or len(store))
        self.translated = np.linspace(0, len(store) - 1, chosen).round().astype(int).tolist()
        self.references = [target for _, target in store.texts(self.translated)]
        if config.bleu_every > 0:
            corpus_metrics(segmentation.target.language, ["bleu"])  # a missing tokeniser is an error before training

    @torch.no_grad()
    def measure(self, model: TranslationModel, translate: bool) -> ValidationResult:
        """Measure the model's perplexity on the validation text and, with `translate`, the scores of its translations.

        If the likelihood is not finite, nothing is translated: beam search would find no best piece.
        """
        began = time.perf_counter()
        model.eval()
        nll, gates = self._nll(model), self._gates(model)
        if not (translate and math.isfinite(nll)):
            return ValidationResult(nll, time.perf_counter() - began, gates=gates)
        translations = self._translate(model)
        language, lowercase = self.segmentation.target.language, self.segmentation.config.lowercase
        scores = corpus_scores(translations, self.references, language, self.metrics, lowercase=lowercase)
        seconds = time.perf_counter() - began
        result = ValidationResult(nll, seconds, scores.bleu.value, scores.bleu.signature, tuple(translations), gates)
        if scores.chrf is None:
            return result
        return replace(result, chrf=scores.chrf.value, chrf_signature=scores.chrf.signature)

    def _nll(self, model: TranslationModel) -> float:
        def compute(indices: Sequence[int]) -> list[tuple[float, int]]:
            batch = load(self.store, np.asarray(indices))
            num_tokens, batch = batch.num_target_tokens, batch.to(self.fabric.device)
            with autocast_to(self.precision, self.fabric.device):
                logits = model(batch.source, batch.target_input)
            return [(float(cross_entropy_sums(logits, batch.target_output, 0.0)[1]), num_tokens)]

        batches = self._mine(*self.store.lengths)
        parts = [part for indices in batches for part in in_parts(indices, compute, self._too_large)]
        sums = [float(sum(nll for nll, _ in parts)), float(sum(num for _, num in parts))]
        nll, num_tokens = sum_numbers(sums, self.fabric.device)
        return nll / num_tokens

    def _gates(self, model: TranslationModel) -> GateMeans:
        """Mean gates over the first sentences of the validation text, the same in every process."""

        def compute(number: Sequence[int]) -> list[GateMeans]:
            batch = load(self.store, np.asarray(number)).to(self.fabric.device)
            attn_weights = AttentionMaps(wanted=frozenset(["gates"]))
            with autocast_to(self.precision, self.fabric.device):
                model(batch.source, batch.target_input, attn_weights)
            return [plain_means(gate_means(attn_weights, batch.source_mask, batch.target_mask), 0)]

        numbers = range(min(GATED_SENTENCES, len(self.store)) if model.has_shortcuts else 0)
        means = [found for number in numbers for found in in_parts([number], compute, self._too_large)]
        return mean_over_sentences(means) if means else {}

    def _translate(self, model: TranslationModel) -> list[str]:
        sources = [ids for ids, _ in self.store.pairs(self.translated)]
        lengths = np.array([num_tokens(ids) for ids in sources])
        limits = np.array([target_limit(length, self.search) for length in lengths.tolist()])

        def compute(indices: Sequence[int]) -> list[tuple[int, str]]:
            source = collate_sources([sources[i] for i in indices]).to(self.fabric.device)
            with autocast_to(self.precision, self.fabric.device):
                found = beam_search(model, source, self.search)
            texts = [self.segmentation.target.decode_ids(list(hypotheses[0].ids)) for hypotheses in found]
            return list(zip(indices, texts, strict=True))

        def too_large(number: int) -> DataError:
            return self._too_large(self.translated[number])

        mine = [pair for indices in self._mine(lengths, limits) for pair in in_parts(indices, compute, too_large)]
        texts = dict(chain.from_iterable(gather(mine)))
        return [texts[number] for number in range(len(sources))]

    def _mine(self, source_lengths: np.ndarray, target_lengths: np.ndarray) -> list[list[int]]:
        """This process's share of the batches, with the limits of training."""
        batches = plan_batches(source_lengths, target_lengths, self.batches)
        return batches[self.fabric.global_rank :: self.fabric.world_size]

    def _too_large(self, number: int) -> DataError:
        return DataError(
            f"{self.store.origin(number)}: this pair of the validation text does not fit in memory, even by itself. "
            "Filter long sentences (data.filters), or use a smaller model or beam."
        )
