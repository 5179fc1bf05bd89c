"""Speed of this machine in training a planned model, measured on a sample of the text within seconds."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from jointnmt.data.store import build_store
from jointnmt.experiment import Experiment
from jointnmt.ops import adapt_waiting
from jointnmt.ops.waiting import CROWDED, seconds_without_core
from jointnmt.planning.sizing import Machine
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.devices import launch_fabric
from jointnmt.training.memory import keep_freed_memory
from jointnmt.training.precision import candidate_precisions, faster_precision
from jointnmt.training.speed import measure_rates, untrained
from jointnmt.training.trainer import Trainer
from jointnmt.training.validation import Validation

logger = logging.getLogger(__name__)

SECONDS = 1.5
"""Seconds of each measurement of a precision."""

MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""File with the memory limit of a container, in bytes; Linux, control groups version 2."""

TRANSLATED = 40
"""Number of sentences translated to measure the time of a validation."""


@dataclass(frozen=True)
class Speed:
    """Measured speed."""

    rates: dict[str, float]
    """Target pieces a second in training, by precision."""
    validation: float
    """Seconds of a validation without translations."""
    translation: float
    """Seconds to translate a sentence in validation by an untrained model; a trained one ends sooner."""


def machine() -> Machine:
    """This computer, as far as known; in a container, the part that it may use."""
    adapt_waiting()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return Machine(torch.get_num_threads(), gpu, _memory())


def _memory() -> float | None:
    """GiB of main memory that this process may use; None: unknown."""
    found = []
    with suppress(ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # "max": no limit
        found.append(int(MEMORY_LIMIT.read_text()))
    return min(found) / 2**30 if found else None


def measure_speed(experiment: Experiment, segmentation: Segmentation, cache: Path) -> Speed:
    """Train for some seconds in each precision, and translate some sentences; a warning says if other programs disturb.

    Args:
        experiment: the planned experiment, with a sample of the text as its data.
        segmentation: the segmentation of its model.
        cache: a folder for segmented text, which may be deleted afterwards.
    """
    keep_freed_memory()  # as a training does
    training = experiment.training.model_copy(update={"devices": 1})
    data = experiment.data.model_copy(update={"cache": cache})
    experiment = experiment.model_copy(update={"data": data, "training": training})
    store, fabric = build_store(experiment.data, segmentation, quiet=True), launch_fabric(training)
    precisions = candidate_precisions(fabric.device)
    trainers = {name: untrained(experiment, name, fabric, segmentation, store) for name in precisions}
    with _other_work_noticed():
        rates = measure_rates(trainers, SECONDS)
        return Speed(rates, *_validation(experiment, segmentation, trainers[faster_precision(rates)]))


@contextmanager
def _other_work_noticed() -> Iterator[None]:
    """Context of a measurement; a warning if one of its threads has often waited for a core."""
    before, began = seconds_without_core(), time.monotonic()
    yield
    waited = max((seconds - before.get(thread, 0.0) for thread, seconds in seconds_without_core().items()), default=0.0)
    share = waited / (time.monotonic() - began)
    if share > CROWDED:
        logger.warning(
            "other programs kept the processor busy: for %.0f%% of the measurement, this one waited. The time is too "
            "long and the precision perhaps not the fastest. When they have ended, run the same command with "
            "--overwrite",
            100 * share,
        )


def _validation(experiment: Experiment, segmentation: Segmentation, trainer: Trainer) -> tuple[float, float]:
    """Seconds of a validation that translates nothing, and of each sentence that is translated."""
    rules = experiment.validation.model_copy(update={"bleu_sentences": TRANSLATED})
    store = build_store(experiment.data, segmentation, "validation", quiet=True)
    validation = Validation(
        trainer.fabric, store, segmentation, rules, experiment.batches, experiment.search, trainer.config.precision
    )
    alone, both = (validation.measure(trainer.model, translate).seconds for translate in (False, True))
    return alone, max(0.0, both - alone) / len(validation.translated)
