"""The learning rate as a pure function of the step."""

from jointnmt.experiment import ScheduleConfig

WARMUPS = 3
"""Fewer updates than so many times the warm-up spend most of the training below the rate that it was set to."""


def learning_rate(config: ScheduleConfig, step: int) -> float:
    """The learning rate of update `step`, counted from 1.

    Rises linearly from `initial_rate` (before update 1) to `peak_rate` (at update `warmup_steps`), then falls with
    1/sqrt(step), continuous at the peak. (Vaswani et al. 2017, as the joint-representation authors' code sets it.) With
    `zero_at`, it falls linearly instead, for trainings of a fixed length.
    """
    if step < config.warmup_steps:
        return config.initial_rate + (config.peak_rate - config.initial_rate) * step / config.warmup_steps
    if config.zero_at is not None:
        return config.peak_rate * max(config.zero_at - step, 0) / (config.zero_at - config.warmup_steps)
    return float(config.peak_rate * (max(config.warmup_steps, 1) / step) ** 0.5)


def shorter_warmup(config: ScheduleConfig, updates: int) -> int | None:
    """A warm-up that fits so many updates, a tenth of them; None: the one that is set does."""
    shorter = max(1, updates // 10)
    return shorter if updates < WARMUPS * config.warmup_steps and shorter < config.warmup_steps else None
