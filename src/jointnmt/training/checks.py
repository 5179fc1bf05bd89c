"""Checks of an experiment before any work, so that what would end a training later is reported at once."""

from __future__ import annotations

from jointnmt.data.corpus import read_lines
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.training.optimizer import find_optimizer
from jointnmt.training.schedule import find_decay


def check_before_work(experiment: Experiment) -> None:
    """Check that the training would end, and that its optimiser, its schedule and all its texts can be found.

    Raises:
        ConfigurationError: if it would never end, or lacks a text to stop or to choose by.
        DataError: naming a file that cannot be read.
        MissingPackageError: if the optimiser or the decay of the rate cannot be found or loaded.
    """
    _check_end(experiment)
    _check_metric(experiment)
    find_optimizer(experiment.training.optimizer)
    find_decay(experiment.training.schedule.decay)
    for text in (*experiment.data.train, *experiment.data.validation):
        for path in experiment.data.place(text).files:
            next(read_lines(path), None)


def _check_end(experiment: Experiment) -> None:
    training, validation = experiment.training, experiment.validation
    if not any((training.max_updates, training.max_epochs, training.schedule.zero_at, validation.patience)):
        raise ConfigurationError(
            "This training would never end: set training.max_updates, training.max_epochs, "
            "training.schedule.zero_at or validation.patience."
        )
    if validation.patience is not None and not experiment.data.validation:
        raise ConfigurationError(
            f"validation.patience is {validation.patience}, which needs a text in data.validation. Name one, or "
            "set validation.patience=null."
        )


def _check_metric(experiment: Experiment) -> None:
    validation = experiment.validation
    if validation.metric == "perplexity":
        return
    chosen = f"validation.metric is {validation.metric}"
    if not experiment.data.validation:
        raise ConfigurationError(f"{chosen}, which needs a text in data.validation.")
    if validation.bleu_every == 0:
        raise ConfigurationError(
            f"{chosen}, but validation.bleu_every is 0: nothing is translated, so that it is never measured."
        )
