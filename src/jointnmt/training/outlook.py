"""Checks of a training before its first update: its length, and settings that do not fit its length or text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from jointnmt.data.batches import POOL_PAIRS, plan_epoch
from jointnmt.data.mixture import epoch_pairs
from jointnmt.data.store import TokenStore
from jointnmt.experiment import Experiment
from jointnmt.text.config import SegmentationConfig
from jointnmt.training.schedule import shorter_warmup

MOST_PARAMETERS = 20
"""Most parameters for each target token of the corpus. The recipes for small corpora have 2 to 7."""

MUCH_DROPOUT, MOST_WITH_DROPOUT = 0.3, 80
"""A dropout rate from which on the second number replaces `MOST_PARAMETERS`: with 3,000 pairs, 50 parameters for each
target token gave the BLEU in docs/own-text.md."""

EARLY = 0.9
"""Share of the updates until the learning rate is zero before which a training should not end."""

WORTHWHILE = 0.8
"""Largest share of the present vocabulary for which a smaller one is worth another segmentation."""
FEWEST_OCCURRENCES = 8
"""Fewest target tokens of the corpus for each piece of the vocabulary: pieces seen less often are hardly learnt."""


def _key_of_size(segmentation: SegmentationConfig) -> str:
    """The key that sets the number of target pieces, or names their merges."""
    if segmentation.codes is not None:
        return f"the number of merges in segmentation.{'from' if segmentation.joint else 'target_from'}"
    if segmentation.num_merges is not None:
        return "segmentation.num_merges"
    return f"segmentation.{'vocabulary_size' if segmentation.joint else 'target_vocabulary_size'}"


@dataclass(frozen=True)
class Outlook:
    """Sizes of a training: its model, text and number of updates."""

    experiment: Experiment
    epoch_updates: int
    pairs: int
    target_tokens: int
    """Number of target tokens, end marks included."""
    parameters: int
    vocabulary: int
    """Number of target pieces."""

    @classmethod
    def of(cls, experiment: Experiment, store: TokenStore, parameters: int, vocabulary: int) -> Self:
        """The outlook of a training on this text; updates of a large corpus are extrapolated from its first pairs."""
        source, target = (lengths[:POOL_PAIRS] for lengths in store.lengths)
        seen = len(plan_epoch(source, target, experiment.batches, experiment.seed, 0, store.origin))
        updates = math.ceil(seen * epoch_pairs(store) / max(len(source), 1))
        return cls(experiment, updates, len(store), int(store.lengths[1].sum()), parameters, vocabulary)

    @property
    def updates(self) -> int | None:
        """Number of updates until the end; None if only patience ends the training."""
        training = self.experiment.training
        epochs = None if training.max_epochs is None else training.max_epochs * self.epoch_updates
        return training.planned_end(epochs)

    def warnings(self) -> list[str]:
        """Likely problems of the training, each with what to do."""
        return [*self._of_end(), *self._of_warmup(), *self._of_size()]

    def _of_end(self) -> Iterator[str]:
        training, updates = self.experiment.training, self.updates
        zero_at, most = training.schedule.zero_at, training.max_updates
        if zero_at is None or updates is None:
            return
        if most is not None and most > zero_at:
            yield (
                f"training.max_updates is {most:,}, but training ends after {zero_at:,} updates, when the learning "
                "rate reaches zero. To train for longer, set training.schedule.zero_at, too"
            )
        if training.schedule.warmup_steps < updates < EARLY * zero_at:
            yield (
                f"training ends after {updates:,} updates, long before the learning rate reaches zero; much is learnt "
                f"while the rate falls. Set training.schedule.zero_at, now {zero_at:,}, to {updates:,}"
            )

    def _of_warmup(self) -> Iterator[str]:
        schedule, patience = self.experiment.training.schedule, self.experiment.validation.patience
        warmup, updates = schedule.warmup_steps, self.updates
        if updates is not None and (shorter := shorter_warmup(schedule, updates)) is not None:
            epochs = updates / max(self.epoch_updates, 1)
            yield (
                f"the learning rate warms up for {warmup:,} updates, but {updates:,} are planned in all "
                f"({epochs:.1f} epochs of {self.epoch_updates:,} each). Set training.schedule.warmup_steps to "
                f"{shorter:,}, a tenth, or train for longer"
            )
        every = self.experiment.validation.every_updates
        every = self.epoch_updates * self.experiment.validation.every_epochs if every is None else every
        if patience is not None and patience * every < warmup:
            yield (
                f"validation.patience is {patience}, and as many validations are within the warm-up of {warmup:,} "
                f"updates, one every {every:,}. Patience counts only those after it. Set a shorter warm-up "
                "(training.schedule.warmup_steps), or fewer validations (validation.every_updates)"
            )

    def _of_size(self) -> Iterator[str]:
        if self.experiment.training.start is not None:
            return  # sizes were chosen for another corpus
        model = self.experiment.model
        has_much = model.dropout >= MUCH_DROPOUT
        most = MOST_WITH_DROPOUT if has_much else MOST_PARAMETERS
        if (each := self.parameters / max(self.target_tokens, 1)) > most:
            yield (
                f"the model has {self.parameters:,} parameters, {each:.0f} for each of the {self.target_tokens:,} "
                f"target tokens of {self.pairs:,} sentence pairs: it will overfit. "
                "Choose a smaller one (model.embed_dim, segmentation.vocabulary_size), "
                + ("" if has_much or model.is_grid else "raise model.dropout to 0.3, ")
                + "or use more text"
            )
        if (often := self.target_tokens / self.vocabulary) < FEWEST_OCCURRENCES:
            fewer = max(500, round(self.target_tokens // 20, -2))
            key = _key_of_size(self.experiment.segmentation)
            yield (
                f"the target has {self.vocabulary:,} pieces, which occur {often:.1f} times each in the training text. "
                + (f"Set {key} to {fewer:,} or so" if fewer <= WORTHWHILE * self.vocabulary else "Use more text")
            )
