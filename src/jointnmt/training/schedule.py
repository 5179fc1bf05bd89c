"""The learning rate as a pure function of the update's number."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from jointnmt.config import Config


class ScheduleConfig(Config):
    """Linear warm-up, then decay with the inverse square root of the update's number, or in a straight line."""

    peak_rate: float = Field(1e-3, gt=0, description="learning rate at the end of the warm-up, the highest")
    initial_rate: float = Field(1e-7, ge=0, description="learning rate before the first update")
    warmup_steps: int = Field(4000, ge=0, description="updates from the initial to the peak rate; 0: start at the peak")
    zero_at: int | None = Field(
        None, ge=1, description="linear decay to zero at this update, where training ends; null: inverse square root"
    )

    @model_validator(mode="after")
    def _rates_rise(self) -> Self:
        if self.initial_rate > self.peak_rate:
            raise ValueError(f"initial_rate {self.initial_rate} is above peak_rate {self.peak_rate}")
        if self.zero_at is not None and self.zero_at <= self.warmup_steps:
            raise ValueError(f"zero_at {self.zero_at} is not after warmup_steps {self.warmup_steps}")
        return self


def learning_rate(config: ScheduleConfig, step: int) -> float:
    """The learning rate of update `step`, counted from 1.

    Rises linearly from `initial_rate` (before update 1) to `peak_rate` (at update `warmup_steps`), then falls with
    1/sqrt(step), continuous at the peak. (Vaswani et al. 2017, as the joint-representation authors' code sets it.) With
    `zero_at`, it falls linearly instead, which suits a training whose length is settled in advance.
    """
    if step < config.warmup_steps:
        return config.initial_rate + (config.peak_rate - config.initial_rate) * step / config.warmup_steps
    if config.zero_at is not None:
        return config.peak_rate * max(config.zero_at - step, 0) / (config.zero_at - config.warmup_steps)
    return float(config.peak_rate * (max(config.warmup_steps, 1) / step) ** 0.5)
