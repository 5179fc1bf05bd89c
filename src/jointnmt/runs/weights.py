"""Weights in files: full in a RUN, compact in a folder to share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor

from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.runs import checkpoint
from jointnmt.runs.contents import is_state, stored_precision

Stored = TypeVar("Stored")

StoredPrecision = Literal["float32", "float16", "bfloat16"]
"""Precision of weights in a file. float16 rounds to 11 significant bits, bfloat16 to 8."""

IN_STATE = "model."
"""Prefix of the names of the model's weights in a state of a training."""


def weights_of_state(named: Mapping[str, Stored]) -> dict[str, Stored]:
    """The model's weights in a state, by their names in the model."""
    return {name.removeprefix(IN_STATE): each for name, each in named.items() if name.startswith(IN_STATE)}


def write_compact(
    path: Path, weights: Mapping[str, Tensor], values: Mapping[str, Any], precision: StoredPrecision
) -> None:
    """Write weights in `precision`, tied ones once.

    The values of the file state this: `weights` is the precision, `tied` maps each omitted name to the one that holds
    its weights. `read_weights` undoes both.

    Args:
        path: path of the file, which is written atomically.
        weights: weights by name, as from `state_dict()`; tied ones share their memory.
        values: further values for the file, such as the updates after which the weights were taken.
        precision: precision of the file.

    Raises:
        ConfigurationError: if there is no such precision, or a weight is beyond its range (65,504 for float16).
    """
    check_precision(precision)
    kept: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    names: dict[tuple[Any, ...], str] = {}
    for name, tensor in weights.items():
        first = names.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype), name)
        if first == name or not tensor.numel():
            kept[name] = _stored(name, tensor, getattr(torch, precision))
        else:
            tied[name] = first
    checkpoint.write(path, kept, {**values, "weights": precision, "tied": tied})


def check_precision(precision: str) -> None:
    """Refuse a precision that weights cannot be stored in.

    Raises:
        ConfigurationError: if it is none of `StoredPrecision`.
    """
    if precision not in get_args(StoredPrecision):
        raise ConfigurationError(
            f"weights is {precision!r}, but must be one of {', '.join(get_args(StoredPrecision))}."
        )


def read_weights(path: Path) -> dict[str, Tensor]:
    """The model's weights in a checkpoint or a compact file, by all their names; 16-bit ones become float32.

    Raises:
        ModelError: if the file is missing, damaged, or in an unknown compact format.
    """
    tensors, values = checkpoint.read(path)
    if is_state(values):
        return weights_of_state(tensors)
    if stored_precision(values) not in get_args(StoredPrecision):
        raise ModelError(
            f"{path}: its weights are stored as {stored_precision(values)!r}; this jointnmt reads "
            f"{', '.join(get_args(StoredPrecision))}. Save the model again, or update jointnmt."
        )
    if "weights" in values:
        tensors = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    return with_tied(tensors, values, path)


def with_tied(stored: Mapping[str, Stored], values: Mapping[str, Any], path: Path) -> dict[str, Stored]:
    """The entry of a file of weights for each name, including omitted names that are tied to others.

    Raises:
        ModelError: if one is tied to weights that are missing.
    """
    tied = values.get("tied", {})
    if not isinstance(tied, dict) or not all(isinstance(other, str) for other in tied.values()):
        raise ModelError(f"{path}: does not name the tied weights. Save the model again.")
    if missing := sorted(set(tied.values()) - stored.keys()):
        raise ModelError(f"{path}: weights are tied to {missing[0]}, which is missing. Save the model again.")
    return {**stored, **{name: stored[other] for name, other in tied.items()}}


def _stored(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if not tensor.is_floating_point() or tensor.dtype == dtype:
        return tensor
    rounded = tensor.to(dtype)
    if not torch.equal(rounded.isfinite(), tensor.isfinite()):
        raise ConfigurationError(
            f"The weights {name} reach {tensor.abs().max():.3g}, beyond the range of {dtype}. Store them in bfloat16 "
            "or float32."
        )
    return rounded
