"""The learning rate as a pure function of the step."""

from jointnmt.experiment import ScheduleConfig


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
