"""How fast this machine trains a planned model: measured on a sample of the text, in seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import torch

from jointnmt.data.store import TokenStore, build_store
from jointnmt.experiment import Experiment
from jointnmt.models import build_model
from jointnmt.planning.sizing import Machine
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.allocator import keep_freed_memory
from jointnmt.training.devices import launch_fabric
from jointnmt.training.report import StepReport
from jointnmt.training.trainer import Trainer
from jointnmt.training.validation import Validation

ROUNDS, SECONDS = 3, 1.5
"""Of measured updates in each precision, by turns: the fastest round counts, as other work makes the others slower."""

FIRST_UPDATES = 2
"""Not measured: they compile kernels and fill caches."""

TRANSLATED = 40
"""Sentences that the time of a validation is measured by."""


@dataclass(frozen=True)
class Speed:
    """What was measured."""

    rates: dict[str, float]
    """Target pieces a second in training, by precision."""
    translation: float
    """Seconds to translate a sentence in validation, by an untrained model: a trained one ends sooner."""


def machine() -> Machine:
    """This computer, as far as the system tells."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError):
        memory = None
    return Machine(torch.get_num_threads(), gpu, memory)


def measure_speed(experiment: Experiment, segmentation: Segmentation, cache: Path) -> Speed:
    """Train for some seconds in each precision, and translate some sentences.

    Args:
        experiment: with a sample of the text as its data.
        segmentation: of its model.
        cache: a folder for segmented text, which may be deleted afterwards.
    """
    keep_freed_memory()  # as a training does
    precisions = ("bfloat16",) if torch.cuda.is_available() else ("float32", "bfloat16")
    data = experiment.data.model_copy(update={"cache": cache})
    experiment = experiment.model_copy(update={"data": data})
    store = build_store(experiment.data, segmentation)
    trainers = {}
    for precision in precisions:
        training = experiment.training.model_copy(update={"precision": precision, "devices": 1})
        trainers[precision] = _trainer(experiment.model_copy(update={"training": training}), segmentation, store)
    rates = dict.fromkeys(precisions, 0.0)
    with ExitStack() as stack:
        steps = {precision: trainer.steps() for precision, trainer in trainers.items()}
        for running in steps.values():
            stack.callback(cast(Generator[StepReport, None, None], running).close)
        for running in steps.values():
            for _ in islice(running, FIRST_UPDATES):
                pass
        for precision in precisions * ROUNDS:
            rates[precision] = max(rates[precision], _rate(steps[precision]))
    fastest = max(rates, key=lambda precision: rates[precision])
    return Speed(rates, _translation(experiment, segmentation, trainers[fastest]))


def _trainer(experiment: Experiment, segmentation: Segmentation, store: TokenStore) -> Trainer:
    torch.manual_seed(experiment.seed)
    fabric = launch_fabric(experiment.training)
    model = build_model(experiment.model, segmentation.source.vocabulary_size, segmentation.target.vocabulary_size)
    return Trainer(fabric, model, store, experiment.training, experiment.batches, experiment.seed)


def _rate(steps: Iterator[StepReport]) -> float:
    """Target pieces a second."""
    began, pieces = time.perf_counter(), 0.0
    for report in steps:
        pieces += report.sums.target_tokens
        if time.perf_counter() - began > SECONDS:
            break
    return pieces / (time.perf_counter() - began)


def _translation(experiment: Experiment, segmentation: Segmentation, trainer: Trainer) -> float:
    rules = experiment.validation.model_copy(update={"bleu_sentences": TRANSLATED})
    store = build_store(experiment.data, segmentation, "validation")
    validation = Validation(trainer.fabric, store, segmentation, rules, experiment.batches, experiment.search)
    return validation.measure(trainer.model, translate=True).seconds / len(validation.translated)
