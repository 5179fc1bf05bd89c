"""Collectives over the training processes; with one process, each returns its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, distributed, nn

from jointnmt.errors import JointNMTError, LostProcessError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Value = TypeVar("Value")


def num_processes() -> int:
    """The number of training processes."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def synchronise(model: nn.Module) -> None:
    """Broadcast the first process's weights to all others."""
    if num_processes() > 1:
        for tensor in model.state_dict().values():
            with _reaching_the_others():
                distributed.broadcast(tensor, src=0)


def sum_over_processes(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all processes, in place."""
    if num_processes() > 1:
        with _reaching_the_others():
            distributed.all_reduce(tensor)
    return tensor


def sum_numbers(numbers: list[float], device: torch.device) -> list[float]:
    """Each number summed over all processes, in float64."""
    if num_processes() == 1:
        return numbers
    return sum_over_processes(torch.tensor(numbers, dtype=torch.float64, device=device)).tolist()


def gather(value: Value) -> list[Value]:
    """The values of all processes, in rank order, in every process."""
    if num_processes() == 1:
        return [value]
    values: list[Value | None] = [None] * num_processes()
    with _reaching_the_others():
        distributed.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def wait_for_all(fabric: Fabric) -> None:
    """Wait until all processes are here."""
    with _reaching_the_others():
        fabric.barrier()


@contextmanager
def _reaching_the_others() -> Iterator[None]:
    """A context of a collective.

    Raises:
        LostProcessError: if it fails, which is how the end of another process shows.
    """
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0][:200]
        raise LostProcessError(
            f"Another process of this training has ended, or cannot be reached ({reason}). Its own message says why. "
            "The same command resumes from the last saved state."
        ) from error


def first_process_first(act: Callable[[], None]) -> None:
    """Run `act` in the first process while the others wait.

    Raises:
        JointNMTError: in the first process, if `act` raised it; the others exit silently with its exit code.
    """
    error: JointNMTError | None = None
    if is_first():
        try:
            act()
        except JointNMTError as raised:
            error = raised
    exit_code = gather(error.exit_code if error else 0)[0]
    if error is not None:
        raise error
    if exit_code:
        raise SystemExit(exit_code)


def is_first() -> bool:
    """Whether this is the first (or only) process."""
    return num_processes() == 1 or distributed.get_rank() == 0
