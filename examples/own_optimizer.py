"""Train with an optimiser and a decay of the learning rate of your own, here Lion (Chen et al. 2023) and a parabola.

    python examples/own_optimizer.py RECIPE RUN [KEY=VALUE ...]

All else is as in `jointnmt train`: the same command resumes, validates, averages and clips. A package that provides
both by entry points needs no script; recipes name them then, and `jointnmt train` finds them:

    [project.entry-points."jointnmt.optimizers"]
    lion = "own_optimizer:Lion"
    [project.entry-points."jointnmt.decays"]
    parabola = "own_optimizer:parabola"
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

import jointnmt
from jointnmt.experiment import ScheduleConfig
from jointnmt.training.optimizer import OPTIMIZERS
from jointnmt.training.schedule import DECAYS


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of the paper; biases and norms have no weight decay."""

    def __init__(
        self, named: Iterable[tuple[str, nn.Parameter]], betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.0
    ) -> None:
        named = list(named)
        groups: list[dict[str, Any]] = [
            {"params": [each for _, each in named if each.ndim > 1], "decay": decay},
            {"params": [each for _, each in named if each.ndim <= 1], "decay": 0.0},
        ]
        super().__init__(groups, {"lr": 0.0, "betas": tuple(betas)})  # training sets the rate before each update

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["mean"] = torch.zeros_like(weight)
                direction = state["mean"].lerp(weight.grad, 1 - first).sign()
                weight.mul_(1 - group["lr"] * group["decay"]).sub_(direction, alpha=group["lr"])
                state["mean"].lerp_(weight.grad, 1 - second)


def parabola(step: int, schedule: ScheduleConfig) -> float:
    """From the peak, at the end of the warm-up, to zero: the square of the linear decay."""
    assert schedule.zero_at is not None, "training.schedule.decay parabola needs training.schedule.zero_at"
    left = max(schedule.zero_at - step, 0) / (schedule.zero_at - schedule.warmup_steps)
    return schedule.peak_rate * left**2


def main(recipe: str, run: str, settings: list[str]) -> None:
    OPTIMIZERS["lion"], DECAYS["parabola"] = Lion, parabola
    named = ["training.optimizer.name=lion", "training.schedule.decay=parabola"]
    records = jointnmt.train(recipe, run, [*named, "training.schedule.peak_rate=0.0003", *settings])
    for record in records:
        if record["event"] == "validation":
            print(f"update {record['step']}: perplexity {record['perplexity']:.2f}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
