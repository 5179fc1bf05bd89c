"""The learning rate as a pure function of the step.

Another package provides a decay by an entry point, which refers to a function of the update (from 1, after the warm-up)
and the schedule's settings, and returns the learning rate:

    [project.entry-points."jointnmt.decays"]
    square = "my_package:square"

A recipe names it as `training.schedule.decay`. It must depend on nothing else: a resumed training calls it again.
"""

import math
from collections.abc import Callable

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import ScheduleConfig
from jointnmt.extensions import ExtensionPoint

OTHER_DECAYS = ExtensionPoint("jointnmt.decays", "decay of the learning rate")

Decay = Callable[[int, ScheduleConfig], float]
"""The learning rate of an update after the warm-up, by its number and the schedule's settings."""

WARMUPS = 3
"""A training shorter than this many warm-ups spends much of its time below the peak learning rate."""


def learning_rate(config: ScheduleConfig, step: int) -> float:
    """The learning rate of update `step`, counted from 1.

    Rises linearly from `initial_rate` (before update 1) to `peak_rate` (at update `warmup_steps`), then falls with
    1/sqrt(step), continuous at the peak (Vaswani et al. 2017, as configured in the code of Li et al. 2020). With
    `zero_at`, it falls to zero instead, for trainings of a fixed length: linearly, or with `decay` cosine along half a
    period of a cosine (Loshchilov and Hutter 2017, Eq. 5, without restarts). Any other `decay` is that of `find_decay`.

    Raises:
        ConfigurationError: if another package's decay returns no rate.
        MissingPackageError: as in `find_decay`.
    """
    if step < config.warmup_steps:
        return config.initial_rate + (config.peak_rate - config.initial_rate) * step / config.warmup_steps
    rate = find_decay(config.decay)(step, config)
    if not (math.isfinite(rate) and rate >= 0):
        raise ConfigurationError(
            f"training.schedule.decay {config.decay}: the rate of update {step} should be a finite number, at least 0, "
            f"but is {rate}."
        )
    return float(rate)


def find_decay(name: str) -> Decay:
    """The decay of this name.

    Raises:
        MissingPackageError: if there is none, or it cannot be loaded.
    """
    return DECAYS.setdefault(name, OTHER_DECAYS.find_callable(name, DECAYS))


def _linear(step: int, config: ScheduleConfig) -> float:
    if config.zero_at is None:
        return float(config.peak_rate * (max(config.warmup_steps, 1) / step) ** 0.5)
    return config.peak_rate * max(config.zero_at - step, 0) / (config.zero_at - config.warmup_steps)


def _cosine(step: int, config: ScheduleConfig) -> float:
    assert config.zero_at is not None
    left = max(config.zero_at - step, 0) / (config.zero_at - config.warmup_steps)
    return config.peak_rate * (1 - math.cos(math.pi * left)) / 2


DECAYS: dict[str, Decay] = {"linear": _linear, "cosine": _cosine}
"""Decays by name; a script may add its own before it trains."""


def shorter_warmup(config: ScheduleConfig, updates: int) -> int | None:
    """A warm-up for so many updates, a tenth of them, if the configured one is too long for them; else None."""
    shorter = max(1, updates // 10)
    return shorter if updates < WARMUPS * config.warmup_steps and shorter < config.warmup_steps else None
