"""Gradients of an update: summed over processes, measured and scaled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from jointnmt.training.processes import sum_over_processes

PIECE = 2**16


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """L2 norm of all elements of the tensors, on a CPU computed piece by piece.

    There, PyTorch accumulates the squares of a float32 tensor in a few sums, in which small summands are lost once the
    sums are large: the norm of 185 million elements is 1% to 2% too small.
    """
    flat = [tensor.flatten() for tensor in tensors]
    pieces = [piece for each in flat for piece in (each.split(PIECE) if each.device.type == "cpu" else [each])]
    return torch.nn.utils.get_total_norm(pieces)


class Gradients(Protocol):
    """Gradients of all parameters of a model; backward passes add to them."""

    def zero(self) -> None:
        """Set the gradients to zero, before an update."""

    def sum(self) -> None:
        """Sum the gradients over all processes, after the backward passes of an update."""

    def norm(self) -> float:
        """L2 norm of the summed gradients."""

    def scale(self, factor: float) -> None:
        """Multiply the summed gradients by a factor."""


class FlatGradients:
    """Gradients in one flat buffer in every process; each parameter's gradient is a view of it.

    The buffer is summed over the processes as a whole, so they may have different numbers of backward passes.
    """

    def __init__(self, model: nn.Module) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        sizes = [parameter.numel() for parameter in parameters]
        self._buffer: Tensor = torch.zeros(sum(sizes), device=parameters[0].device)
        for parameter, piece in zip(parameters, self._buffer.split(sizes), strict=True):
            parameter.grad = piece.view_as(parameter)

    def zero(self) -> None:
        """See `Gradients`."""
        self._buffer.zero_()

    def sum(self) -> None:
        """See `Gradients`."""
        sum_over_processes(self._buffer)

    def norm(self) -> float:
        """See `Gradients`."""
        return float(norm_of([self._buffer]))

    def scale(self, factor: float) -> None:
        """See `Gradients`."""
        self._buffer.mul_(factor)
