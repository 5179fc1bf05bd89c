"""The gradients of an update, as the trainer handles them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from jointnmt.training.processes import sum_over_processes

PIECE = 2**16


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """The norm of all their numbers, on a CPU summed piece by piece.

    There, PyTorch adds up all squares of a float32 tensor in a few sums, which take nothing any more from small
    numbers once they are large: the norm of 185 million is 1% to 2% too small.
    """
    flat = [tensor.flatten() for tensor in tensors]
    pieces = [piece for each in flat for piece in (each.split(PIECE) if each.device.type == "cpu" else [each])]
    return torch.nn.utils.get_total_norm(pieces)


class Gradients(Protocol):
    """Of all parameters of a model; backward passes add to them."""

    def zero(self) -> None:
        """Forget those of the last update."""

    def sum(self) -> None:
        """Sum them over all processes, after the backward passes of an update."""

    def norm(self) -> float:
        """The norm of their sum."""

    def scale(self, factor: float) -> None:
        """Multiply their sum by a factor."""


class FlatGradients:
    """Gradients in one buffer, which every process has whole; each parameter's is a view into it.

    The buffer is summed over the processes at once: one may have more backward passes than another.
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
