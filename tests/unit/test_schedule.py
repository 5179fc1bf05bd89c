"""The learning rate of each update."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from jointnmt.experiment import ScheduleConfig
from jointnmt.training.schedule import learning_rate

PAPER = ScheduleConfig(peak_rate=1e-3, initial_rate=1e-7, warmup_steps=8000)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (1, 1e-7 + (1e-3 - 1e-7) / 8000),
        (4000, (1e-3 + 1e-7) / 2),
        (8000, 1e-3),
        (32000, 5e-4),  # 8000 / 32000 is a quarter, its root a half
    ],
)
def test_warms_up_linearly_then_decays_with_the_root(step: int, rate: float) -> None:
    assert learning_rate(PAPER, step) == pytest.approx(rate, rel=1e-12)


def test_is_highest_at_the_end_of_the_warm_up() -> None:
    rates = [learning_rate(PAPER.model_copy(update={"warmup_steps": 10}), step) for step in range(1, 40)]
    assert max(rates) == rates[9] == 1e-3
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_without_warm_up_it_begins_at_the_peak() -> None:
    config = ScheduleConfig(peak_rate=0.5, initial_rate=0.1, warmup_steps=0)
    assert [learning_rate(config, step) for step in (1, 4)] == [0.5, 0.25]


def test_refuses_a_peak_below_the_start() -> None:
    with pytest.raises(ValidationError, match=r"0\.2.*0\.1"):
        ScheduleConfig(peak_rate=0.1, initial_rate=0.2)


def test_a_straight_line_to_zero() -> None:
    config = ScheduleConfig(peak_rate=1.0, initial_rate=0.0, warmup_steps=4, zero_at=12)
    rates = [learning_rate(config, step) for step in (2, 4, 8, 12, 20)]
    assert rates == pytest.approx([0.5, 1.0, 0.5, 0.0, 0.0])


def test_half_a_cosine_to_zero() -> None:
    """The rates of PyTorch's schedule, one update after another, and zero afterwards; the warm-up stays a line."""
    config = ScheduleConfig(peak_rate=0.8, initial_rate=0.0, warmup_steps=4, zero_at=24, decay="cosine")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.8)
    schedule, rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20), []
    for _ in range(21):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    assert [learning_rate(config, step) for step in range(4, 25)] == pytest.approx(rates, abs=1e-12)
    assert [learning_rate(config, step) for step in (2, 14, 24, 30)] == pytest.approx([0.4, 0.4, 0.0, 0.0])
    assert learning_rate(config, 24) == 0
    line = config.model_copy(update={"decay": "linear"})
    assert all(learning_rate(config, step) > learning_rate(line, step) for step in range(5, 14))
    assert all(learning_rate(config, step) < learning_rate(line, step) for step in range(15, 24))


def test_a_cosine_needs_its_end() -> None:
    with pytest.raises(ValidationError, match="decay cosine needs zero_at"):
        ScheduleConfig(decay="cosine")


def test_the_line_ends_after_the_warm_up() -> None:
    with pytest.raises(ValueError, match="zero_at 4 is not after warmup_steps 4"):
        ScheduleConfig(warmup_steps=4, zero_at=4)
