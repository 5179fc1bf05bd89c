"""Joint training of the probes of all states of a model; each has a file from which training resumes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jointnmt.analysis.probes import ProbeConfig, ProbeTraining, Sentences, round_size, train_round
from jointnmt.analysis.states import Side, states_of
from jointnmt.models import TranslationModel

logger = logging.getLogger(__name__)

ShowProgress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Context that shows the progress of a task of so many sentences; it yields a function that is called with the number
of further sentences done."""


@dataclass(frozen=True)
class ProbeTask:
    """The probes to train, and the text to train them on."""

    model: TranslationModel
    """Frozen model in evaluation mode."""
    sizes: Mapping[Side, tuple[int, int]]
    """Features of a state and size of the vocabulary, by side."""
    train: Sentences
    stop: Sentences
    """The text for early stopping."""
    config: ProbeConfig
    facts: Mapping[str, Any]
    """Everything that the probes depend on, as JSON-compatible values; files with other facts are refused."""
    tags: tuple[int, ...] = ()
    """Ids of tags at the beginning of sources, which no probe learns to predict."""


def train_probes(task: ProbeTask, folder: Path, show: ShowProgress) -> list[ProbeTraining]:
    """Train a probe for each state of a frozen model, or resume an earlier training.

    All unfinished probes are trained together, so that the model computes the states once per round; after each round
    they are saved in `folder`. An interrupted round is repeated. `show` shows the progress of a round.

    Raises:
        ConfigurationError: if `folder` holds probes with other facts.
        ModelError: if a file is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    device = next(task.model.parameters()).device
    trainings = [ProbeTraining(state, task.sizes[state.side], task.config, device) for state in states_of(task.model)]
    files = {training.state: folder / f"{training.state}.safetensors" for training in trainings}
    facts = {**task.facts, "settings": task.config.plain()}
    for training in trainings:
        if files[training.state].exists():
            training.load(files[training.state], facts)
    while waiting := [training for training in trainings if not training.finished]:
        number = min(training.rounds for training in waiting)
        due = [training for training in waiting if training.rounds == number]
        try:
            what = f"round {number + 1} of at most {task.config.max_rounds}, {len(due)} probes"
            with show(what, round_size(task.train, task.config)) as advance:
                train_round(due, task.model, task.train, task.stop, advance, task.tags)
        except KeyboardInterrupt:
            logger.warning("round %d was interrupted: the same command repeats it", number + 1)
            raise
        for training in due:
            training.save(files[training.state], facts)
        accuracies = ", ".join(f"{training.state} {training.accuracies[-1]:.3f}" for training in due)
        logger.info("round %d: %s", number + 1, accuracies)
    return trainings
