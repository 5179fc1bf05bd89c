"""Speed of training in each precision on this machine, measured on some updates in turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, cast

from jointnmt.data.store import TokenStore
from jointnmt.experiment import Experiment
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.model import new_model
from jointnmt.training.precision import candidate_precisions, faster_precision
from jointnmt.training.processes import is_first, of_first
from jointnmt.training.report import StepReport
from jointnmt.training.trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

logger = logging.getLogger(__name__)

ROUNDS = 3
"""Turns of each precision; its fastest one counts, as other work on the machine slows some down."""

FIRST_UPDATES = 2
"""Updates that are not measured: they compile kernels and fill caches."""

SECONDS = 0.5
"""Duration of a turn before a training; it has at least one update."""


def choose_training_precision(
    experiment: Experiment, fabric: Fabric, segmentation: Segmentation, store: TokenStore
) -> str:
    """The precision for `training.precision: auto`, the same in every process; the log gives the reason.

    On a GPU it is bfloat16 if the GPU supports it. On a CPU the first updates of this training are computed in float32
    and in bfloat16, and discarded: which is faster depends on the processor, the family, the sizes and the updates.
    """
    candidates = candidate_precisions(fabric.device)
    if len(candidates) == 1:
        [chosen] = candidates
        logger.info("precision: %s, as this GPU %s bfloat16", chosen, "has" if chosen == "bfloat16" else "has no")
        return chosen
    trainers = {name: untrained(experiment, name, fabric, segmentation, store) for name in candidates}
    rates = measure_rates(trainers, SECONDS)
    chosen = faster_precision(rates)
    if is_first():
        logger.info(
            "precision: %s: in bfloat16 the first updates are %.2f times as fast as in float32 (%s and %s target "
            "pieces a second)",
            chosen,
            rates["bfloat16"] / rates["float32"],
            *(f"{rates[name]:,.0f}" for name in ("bfloat16", "float32")),
        )
    return chosen


def untrained(
    experiment: Experiment, precision: str, fabric: Fabric, segmentation: Segmentation, store: TokenStore
) -> Trainer:
    """A trainer of a new model in this precision."""
    model, training = new_model(experiment, segmentation), experiment.in_precision(precision).training
    return Trainer(fabric, model, store, training, experiment.batches, experiment.seed)


def measure_rates(trainers: Mapping[str, Trainer], seconds: float) -> dict[str, float]:
    """Target tokens per second of each trainer, over all processes, measured in turns of so many seconds."""
    rates = dict.fromkeys(trainers, 0.0)
    with ExitStack() as stack:
        steps = {name: trainer.steps() for name, trainer in trainers.items()}
        for running in steps.values():
            stack.callback(cast(Generator[StepReport, None, None], running).close)
        for running in steps.values():
            for _ in islice(running, FIRST_UPDATES):
                pass
        for name in [*trainers] * ROUNDS:
            rates[name] = max(rates[name], _rate(steps[name], seconds))
    return of_first(lambda: rates)


def _rate(steps: Iterator[StepReport], seconds: float) -> float:
    began, pieces = time.perf_counter(), 0.0
    for report in steps:
        pieces += report.sums.target_tokens
        if of_first(lambda: time.perf_counter() - began > seconds):  # all make as many updates as the first process
            break
    return pieces / (time.perf_counter() - began)
