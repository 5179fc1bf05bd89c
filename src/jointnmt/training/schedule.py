"""The learning rate as a pure function of the step."""

import math

from jointnmt.experiment import ScheduleConfig

WARMUPS = 3
"""A training shorter than this many warm-ups spends much of its time below the peak learning rate."""


def learning_rate(config: ScheduleConfig, step: int) -> float:
    """The learning rate of update `step`, counted from 1.

    Rises linearly from `initial_rate` (before update 1) to `peak_rate` (at update `warmup_steps`), then falls with
    1/sqrt(step), continuous at the peak (Vaswani et al. 2017, as configured in the code of Li et al. 2020). With
    `zero_at`, it falls to zero instead, for trainings of a fixed length: linearly, or with `decay` cosine along half a
    period of a cosine (Loshchilov and Hutter 2017, Eq. 5, without restarts).
    """
    if step < config.warmup_steps:
        return config.initial_rate + (config.peak_rate - config.initial_rate) * step / config.warmup_steps
    if config.zero_at is not None:
        left, length = max(config.zero_at - step, 0), config.zero_at - config.warmup_steps
        if config.decay == "cosine":
            return config.peak_rate * (1 - math.cos(math.pi * left / length)) / 2
        return config.peak_rate * left / length
    return float(config.peak_rate * (max(config.warmup_steps, 1) / step) ** 0.5)


def shorter_warmup(config: ScheduleConfig, updates: int) -> int | None:
    """A warm-up for so many updates, a tenth of them, if the configured one is too long for them; else None."""
    shorter = max(1, updates // 10)
    return shorter if updates < WARMUPS * config.warmup_steps and shorter < config.warmup_steps else None
