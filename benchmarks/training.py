"""Training: the package's own trainer on random tokens in sentences of real lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.counting import training_operations
from benchmarks.processes import Work
from benchmarks.sizes import SIZES, model_config, with_shortcuts
from jointnmt.data.batches import Lengths, UpdateBatches, plan_epoch
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.experiment import TrainingConfig
from jointnmt.models import build_model
from jointnmt.models.layers.shortcut import ShortcutKind
from jointnmt.models.reference import Reference
from jointnmt.text.special import SPECIAL_PIECES
from jointnmt.training.devices import launch_fabric
from jointnmt.training.trainer import Trainer

Implementation = Literal["product", "checkpointed", "compiled", "reference", "ctranslate2"]
"""The package's model, also with activation checkpointing or through torch.compile, or the reference."""
SEED = 1
OVERHEAD_CELLS = {"cpu": 500, "cuda": 100_000}
"""Fixed cost of a batch; on a GPU it is so large that batches are as full as possible."""


class RandomStore:
    """Sentence pairs of given lengths and random pieces, with the interface of `TokenStore`."""

    weights = (1.0,)

    def __init__(self, source: Lengths, target: Lengths, vocabulary: int) -> None:
        self.lengths = source, target
        self._vocabulary = vocabulary

    def pairs(self, indices: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """Pieces without marks; they are fixed for each pair."""
        return [(self._ids(index, 0), self._ids(index, 1)) for index in indices]

    def _ids(self, index: int, side: int) -> list[int]:
        generator = np.random.default_rng([index, side])
        return generator.integers(len(SPECIAL_PIECES), self._vocabulary, self.lengths[side][index] - 1).tolist()

    def origin(self, index: int) -> str:
        """Name of a pair in messages."""
        return f"pair {index}"


@dataclass(frozen=True, eq=False)
class TrainingCase:
    """The training of one process."""

    family: str
    size: str
    precision: str
    implementation: Implementation
    source: Lengths = field(repr=False)
    """Tokens of each pair's source, end mark included."""
    target: Lengths = field(repr=False)
    max_tokens: int
    """Most tokens of a batch on either side."""
    max_cells: int | None
    updates: int
    """Updates of a run."""
    device: str = "cpu"
    """cpu or cuda."""
    shortcuts: ShortcutKind | None = None
    """Lexical shortcuts."""
    update_tokens: int | None = None
    """Most tokens of an update; None: as of a batch."""

    def __call__(self) -> Training:
        """Build the subject."""
        return Training(self)


def equal_pairs(
    family: str, size: str, precision: str, pairs: int, tokens: int, shortcuts: ShortcutKind | None
) -> TrainingCase:
    """One update a run, of so many pairs with so many tokens on either side, end mark included."""
    lengths = np.full(10 * pairs, tokens)
    limits = pairs * tokens, pairs * tokens**2
    return TrainingCase(
        family, size, precision, "product", lengths, lengths, *limits, updates=1, shortcuts=shortcuts
    )  # fmt: skip


class Training:
    """Updates of one model, one after the other through the corpus: forward, backward, clipping, Adam."""

    def __init__(self, case: TrainingCase) -> None:
        self.case, self.device = case, case.device
        # Where batches differ, the memory of ten of them suffices for nearly all that follow.
        self.warm_up_runs = 10 if np.ptp(case.source) or np.ptp(case.target) else 2
        vocabulary = SIZES[case.size].vocabulary
        checkpointed = case.implementation == "checkpointed"
        changes = with_shortcuts(case.shortcuts)
        self.config = model_config(case.family, case.size, activation_checkpointing=checkpointed, **changes)
        torch.manual_seed(SEED)
        model = build_model(self.config, vocabulary, vocabulary)
        settings: dict[str, Any] = {"devices": 1, "precision": case.precision}
        settings["accelerator"] = "gpu" if case.device == "cuda" else "cpu"
        settings["compile"] = case.implementation == "compiled"
        config = TrainingConfig.model_validate({**settings, "loss_mean": "tokens"})
        limits = {"max_tokens": case.max_tokens, "max_cells": case.max_cells}
        limits["update_tokens"] = case.update_tokens or case.max_tokens
        self.batches = BatchConfig(**limits, overhead_cells=OVERHEAD_CELLS[case.device])
        store: Any = RandomStore(case.source, case.target, vocabulary)
        if case.implementation == "reference":
            model = Reference(self.config, dict(model.named_parameters()))
        self.trainer = Trainer(launch_fabric(config), model, store, config, self.batches, SEED)
        self.steps = self.trainer.steps()
        self.late_bytes = 8 * sum(parameter.numel() for parameter in model.parameters())  # Adam's moments
        self._began = self.trainer.position

    def run(self) -> None:
        """Make the updates of one run."""
        self._began = self.trainer.position
        self.reports = [next(self.steps) for _ in range(self.case.updates)]

    def work(self) -> Work:
        """See `Subject`."""
        indices = self.plan()
        pairs = np.concatenate([batch for update in indices for batch in update])
        vocabulary = SIZES[self.case.size].vocabulary
        lengths = [side[pairs].astype(np.int64) for side in (self.case.source, self.case.target)]
        padded = [
            len(batch) * int(self.case.source[batch].max()) * int(self.case.target[batch].max())
            for update in indices
            for batch in update
        ]
        sums = [report.sums for report in self.reports]
        return Work(
            operations=float(np.sum(training_operations(self.config, vocabulary, *lengths))),
            sentences=len(pairs),
            cells=int(sum(each.cells for each in sums)),
            padded_cells=int(sum(each.padded_cells for each in sums)),
            largest_batch=max(padded),
        )

    def plan(self) -> list[UpdateBatches]:
        """The pairs of the last run's updates; an epoch's plan depends only on its number."""
        found: list[UpdateBatches] = []
        epoch, first = self._began.epoch, self._began.update
        while len(found) < self.case.updates:
            plan = plan_epoch(self.case.source, self.case.target, self.batches, SEED, epoch)
            found += plan[first : first + self.case.updates - len(found)]
            epoch, first = epoch + 1, 0
        return found
