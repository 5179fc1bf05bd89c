"""The processes of a training: what they sum, and what the first one tells the others.

The first process alone reads and writes the RUN directory; all others get what they need of it through the process
group, so that machines need not share a file system. With one process, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from jointnmt.errors import LostProcessError
from jointnmt.ops.out_of_memory import is_out_of_memory

Value = TypeVar("Value")
SavedState = tuple[Mapping[str, Tensor], dict[str, Any]]

_first = 0
"""The rank of the first process."""

_group: Any = None
"""The group whose processes wait for each other no longer than `expect_answers` says; None: that of the launch."""


def num_processes() -> int:
    """The number of training processes."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the first (or only) process."""
    return num_processes() == 1 or distributed.get_rank() == _first


def elect_first(progress: int) -> None:
    """Let the first process be the one with the most progress, of equals that of the lowest rank.

    Where machines have RUN directories of their own, this finds the one in which a training goes on: ranks may be dealt
    anew whenever a machine joins or leaves.
    """
    global _first
    reached = gather(progress)
    _first = reached.index(max(reached))


def expect_answers(within: timedelta) -> None:
    """Take processes for lost that leave the others waiting longer than this, from now on."""
    global _group
    if num_processes() > 1:
        with reaching_the_others():
            _group = distributed.new_group(timeout=within)


def group() -> Any:
    """The process group of a training; there are several processes."""
    return _group or distributed.group.WORLD


def synchronise(model: nn.Module) -> None:
    """Broadcast the first process's weights to all others."""
    for tensor in model.state_dict().values() if num_processes() > 1 else ():
        _broadcast(tensor)


def sum_over_processes(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all processes, in place."""
    if num_processes() > 1:
        with reaching_the_others():
            distributed.all_reduce(tensor, group=_group)
    return tensor


def sum_numbers(numbers: list[float], device: torch.device) -> list[float]:
    """Each number summed over all processes, in float64."""
    if num_processes() == 1:
        return numbers
    return sum_over_processes(torch.tensor(numbers, dtype=torch.float64, device=device)).tolist()


def wait_for_all(device: torch.device) -> None:
    """Wait until all processes are here."""
    sum_numbers([0.0], device)


def gather(value: Value) -> list[Value]:
    """The values of all processes, in rank order, in every process."""
    if num_processes() == 1:
        return [value]
    values: list[Value | None] = [None] * num_processes()
    with reaching_the_others():
        distributed.all_gather_object(values, value, group=_group)
    return values  # type: ignore[return-value]


def of_first(make: Callable[[], Value]) -> Value:
    """What `make` returns in the first process, in every process; it is called there alone, while the others wait.

    Raises:
        Exception: in the first process, whatever `make` raised; the others exit silently, with the exit code of a
            JointNMTError, else 1.
    """
    if num_processes() == 1:
        return make()
    value: Value | None = None
    error: Exception | None = None
    if is_first():
        try:
            value = make()
        except Exception as raised:
            error = raised
    told = [(0 if error is None else getattr(error, "exit_code", 1), value)]
    with reaching_the_others():
        distributed.broadcast_object_list(told, src=_first, group=_group)
    if error is not None:
        raise error
    exit_code, value = told[0]
    if exit_code:
        raise SystemExit(exit_code)
    return value  # type: ignore[return-value]


def state_of_first(
    read: Callable[[], SavedState | None],
    device: torch.device,
    keep: Callable[[Tensor], Tensor],
) -> SavedState | None:
    """The tensors and values that `read` returns in the first process, in every process.

    Args:
        read: returns None if there is no state.
        device: where tensors arrive, one after the other.
        keep: what of each tensor this process needs.

    Raises:
        Exception: as of `of_first`.
    """
    state: SavedState | None = None

    def outline() -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        nonlocal state
        state = read()
        return state and ({name: tensor.to("meta") for name, tensor in state[0].items()}, state[1])

    outlined = of_first(outline)
    if outlined is None or num_processes() == 1:
        return state
    mine = state[0] if state else {}
    tensors = {}
    for name, shape in outlined[0].items():
        tensor = mine[name].to(device) if mine else torch.empty_like(shape, device=device)
        _broadcast(tensor)
        tensors[name] = keep(tensor)
    return tensors, outlined[1]


def _broadcast(tensor: Tensor) -> None:
    with reaching_the_others():
        distributed.broadcast(tensor, src=_first, group=_group)


@contextmanager
def reaching_the_others() -> Iterator[None]:
    """A context of a collective.

    Raises:
        LostProcessError: if it fails, which is how the end of another process shows.
        RuntimeError: if memory runs out.
    """
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise lost_process(error) from error


def is_unreachable(error: RuntimeError) -> bool:
    """Whether an error of a computation that processes make together means that one of them cannot be reached."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


def lost_process(error: RuntimeError) -> LostProcessError:
    """What to say of an error of a collective."""
    reason = str(error).partition("\n")[0][:200]
    return LostProcessError(
        f"Another process of this training has ended, or cannot be reached ({reason}). Its own message says why. The "
        "same command resumes from the last saved state."
    )
