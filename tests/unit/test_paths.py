"""Path lengths of the models, and relative speeds from the measured machines."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks import relative
from benchmarks.counting import decoding_operations
from benchmarks.paths import Followed, attention_operations, fewest_attentions, growth, layers_until_meeting
from benchmarks.sizes import model_config
from torch import Tensor

from jointnmt.models.reference import Reference


@pytest.mark.parametrize(
    ("family", "layers", "of_source", "of_target"),
    [("transformer", 3, 1, 1), ("reformer-base", 1, 1, 2), ("reformer-fast", 3, 1, 2)],
)
def test_paths_are_those_of_table_1(family: str, layers: int, of_source: int, of_target: int) -> None:
    """Li et al. 2020: a source token passes l layers before the Transformer's target can see it, and none on the grid.

    The fewest attentions, residual connections being free, are one in cross-attention, in the reduction, or in decoder
    self-attention; and two for a target token of a grid, which passes target attention and the reduction.
    """
    assert layers_until_meeting(family, depth=2, tokens=4) == layers
    assert fewest_attentions(family, 2, 4, "source") == of_source
    assert fewest_attentions(family, 2, 4, "target") == of_target


def test_paths_follow_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """If only the second layer attends, source and target meet there."""

    def self_attention(self: Any, name: str, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        attended = Reference.self_attention(self, name, x, *args, **kwargs)
        return attended if name == "layers.1.target_attention" else 0 * attended

    monkeypatch.setattr(Followed, "self_attention", self_attention)
    assert layers_until_meeting("reformer-base", 3, 4) == 2


def test_attention_grows_as_table_1_says() -> None:
    assert [growth(family) for family in ("transformer", "reformer-base")] == [(2, 1), (3, 1)]
    attention, _ = attention_operations("reformer-base", 5, 8)
    assert attention == 2 * (4 * 8) * 5**3  # axes; each query reads one position; all of both sides


def test_speed_is_relative_to_the_transformer() -> None:
    rows = [line.split(" | ") for line in relative.relative_table().splitlines()]
    assert [row[1:] for row in rows if "paper" in row[0]] == [["0.52", "0.73 |"]]
    told = next(row[1:] for row in rows if "only multiplications" in row[0])
    base, *others = (decoding_operations(model_config(each, "IWSLT"), 10_000, 23, 23, 5) for each in relative.FAMILIES)
    assert [cell.strip(" |") for cell in told] == [f"{base / other:.2f}" for other in others]


def test_share_of_arithmetic_is_of_the_machines_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"precision": "float32", "implementation": "product", "shortcuts": None, "operations": 6e9, "sentences": 2}
    rows = [
        {**row, "family": family, "task": task, "seconds": seconds}
        for task, seconds in (("decoding", 4.0), ("latency", 2.0))
        for family in relative.FAMILIES
    ]
    machine = {"kind": "abacus", "rates": {"float32": 6.0}, "rows": rows}
    monkeypatch.setattr(relative, "_machines", lambda: [machine])
    assert relative.arithmetic_table().splitlines()[2:] == [
        "| abacus, several sentences at once | 25% | 25% | 25% |",
        "| abacus, one sentence | 50% | 50% | 50% |",
    ]
