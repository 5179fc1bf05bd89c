"""The states from which a training resumes: the last one, and the one before it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from jointnmt.errors import ModelError
from jointnmt.runs import checkpoint
from jointnmt.runs.checkpoint import DamagedCheckpointError
from jointnmt.runs.contents import is_state, position_of

logger = logging.getLogger(__name__)


class StoredState(NamedTuple):
    """A saved state of a training."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]
    path: Path


class SavedStates:
    """The files of the last two states in a folder of checkpoints."""

    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints
        self.last = checkpoints / "last.safetensors"
        self.previous = checkpoints / "previous.safetensors"

    def exist(self) -> bool:
        """Whether there is a state to resume from, damaged or not."""
        return self.last.exists() or self.previous.exists()

    def newest_step(self) -> int:
        """The update of the newest state, which may be damaged; -1 if no state gives it.

        Raises:
            ModelError: if a state exists but cannot be read, as it may be the newest.
        """
        return max((_step_of(values) for values in self._values()), default=-1)

    def steps_kept(self) -> set[int]:
        """The updates whose separate weight files a training that resumes from either state needs.

        Raises:
            ModelError: if a state exists but cannot be read, as it may need any.
        """
        steps = set[int]()
        for values in self._values(skip_damaged=False):
            if run := values.get("run"):
                steps.update(step for step, _ in run["selection"]["best"])
                steps.update(run["latest"])
        return steps

    def _values(self, skip_damaged: bool = True) -> Iterator[dict[str, Any]]:
        """The values of each existing state, not verified.

        Raises:
            ModelError: if one cannot be read, or is damaged, unless those are skipped.
        """
        for path in (self.last, self.previous):
            try:
                yield checkpoint.read_outline(path).values
            except ModelError as error:
                missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
                if not (missing or (skip_damaged and isinstance(error, DamagedCheckpointError))):
                    raise

    def write(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Write the last state, and keep the one before it."""
        if self.last.exists():
            self.last.replace(self.previous)
        checkpoint.write(self.last, tensors, values)

    def read(self, remove_damaged: bool = False) -> StoredState | None:
        """The newest undamaged state; None if there is no state.

        Only the holder of the lock may remove damaged newer states, as others may read while one is written.

        Raises:
            ModelError: if all states are damaged; or if one that would be removed cannot be read but may be intact.
        """
        damaged: list[Path] = []
        for path in (self.last, self.previous):
            try:
                state = StoredState(*checkpoint.read(path), path)
                _check_is_state(state.values, path)
            except ModelError as error:
                if isinstance(error.__cause__, FileNotFoundError):  # none yet, or a training is renaming it
                    continue
                if remove_damaged and not isinstance(error, DamagedCheckpointError):  # resuming would overwrite it
                    raise ModelError(
                        f"{error} The training does not resume from an older state, as this one may be intact: make "
                        "the file readable, or delete it to resume from the state before it."
                    ) from error
                logger.warning("%s", error)
                damaged.append(path)
                continue
            for other in damaged:
                if remove_damaged:
                    other.unlink(missing_ok=True)  # otherwise the next save would keep it as the previous state
                logger.warning("%s: resuming from the state before it", other)
            return state
        if damaged:
            raise ModelError(
                f"{self._checkpoints}: the last state is damaged and there is none before it, so the training cannot "
                f"resume. Delete {self._checkpoints.parent} and train again."
            )
        return None


def _check_is_state(values: Mapping[str, Any], path: Path) -> None:
    """Refuse weights alone in the place of a state.

    Raises:
        DamagedCheckpointError: if a training cannot resume from a checkpoint with these values.
    """
    if not is_state(values):
        raise DamagedCheckpointError(f"{path}: holds no state of a training: it has another checkpoint's name.")


def _step_of(values: Mapping[str, Any]) -> int:
    """The update of a state with these unverified values; -1 if they do not give it."""
    try:
        return int(position_of(values)["step"])
    except (LookupError, TypeError, ValueError, OverflowError):
        return -1
