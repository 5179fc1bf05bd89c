"""Shapes in annotations are checked during tests, and functions without shapes are unchanged."""

from __future__ import annotations

from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from support import check_shapes

checked = jaxtyping.jaxtyped(typechecker=check_shapes)
Grid = Float[Tensor, "B S T E"]


@checked
def reduce_source(grid: Grid, axis: int | None = 1) -> Float[Tensor, "B T E"]:
    return grid if axis is None else grid.sum(axis)


@checked
@dataclass
class Sums:
    source: Float[Tensor, "B S"]
    target: Float[Tensor, "B T"] | None = None


@checked
class Wider(Sums):
    pass


def test_shapes_of_parameters_and_results_are_checked() -> None:
    grid = torch.zeros(2, 3, 4, 5)
    assert reduce_source(grid).shape == (2, 4, 5)
    with pytest.raises(jaxtyping.TypeCheckError, match="grid"):
        reduce_source(grid[0])
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        reduce_source(grid, axis=2)
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        reduce_source(grid, axis=None)


@pytest.mark.parametrize("kind", [Sums, Wider])
def test_shapes_of_fields_are_checked(kind: type[Sums]) -> None:
    assert kind(torch.zeros(2, 3)).target is None
    with pytest.raises(jaxtyping.TypeCheckError, match="target"):
        kind(torch.zeros(2, 3), torch.zeros(3, 3))


def test_every_new_form_of_a_call_is_checked() -> None:
    grid = torch.zeros(2, 3, 4, 5)
    for _ in range(2):
        assert reduce_source(grid).shape == (2, 4, 5)
        for wrong in (grid[0], grid.int(), [grid]):
            with pytest.raises(jaxtyping.TypeCheckError, match="grid"):
                reduce_source(wrong)
        with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
            reduce_source(grid, axis=None)


def test_what_has_no_shapes_is_left_as_it_is() -> None:
    def longest(lengths: list[int], fewest: int = 0) -> int:
        return max(lengths, default=fewest)

    assert checked(longest) is longest


def test_the_package_is_checked(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("jaxtyping_packages"):
        pytest.skip("shapes are not checked in this run: `make test` checks them")
    from jointnmt.models import reference

    with pytest.raises(jaxtyping.TypeCheckError, match="x"):
        reference.causal(torch.zeros(3))
