"""Checkpoints: safetensors files, written atomically and verified when read; no pickle.

The metadata has one key, `jointnmt` (the order of several would be random, and so the bytes of the file): JSON of
`version`, `sha256` (of all tensors and values) and `values`, everything that is not a tensor.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from jointnmt.errors import ModelError
from jointnmt.files import replaced

HEADER, VERSION = "jointnmt", 1

ADVICE = "Use another checkpoint, or train again."

TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Tensor types by their names in the file."""


class DamagedCheckpointError(ModelError):
    """A checkpoint with other content than was written, so that it may be deleted."""


def write(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically: at any moment the file is the old or the complete new one.

    Raises:
        OSError: if it cannot be written, for example to a full disk; no partial file is left.
    """
    separate = _separate(tensors)
    header = {"version": VERSION, "sha256": _digest(separate, values), "values": values}
    metadata = {HEADER: json.dumps(header, sort_keys=True)}
    with replaced(path, shared=True) as temporary:  # a training and `average` may write the same file
        temporary.touch()
        mode = temporary.stat().st_mode  # by the umask; safetensors would write mode 600
        try:
            save_file(separate, temporary, metadata)
        except safetensors.SafetensorError as error:
            raise OSError(errno.EIO, f"the checkpoint cannot be written ({error})", str(path)) from error
        temporary.chmod(mode)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read and verify a checkpoint: tensors, on the CPU, and values.

    Raises:
        DamagedCheckpointError: if the file is damaged.
        ModelError: if it is missing, cannot be read, or is in another format.
    """
    with _opened(path) as file:
        version, digest, values = _header(file)
        if version != VERSION:
            raise ModelError(f"{path}: is a checkpoint of version {version}; this jointnmt reads {VERSION}. {ADVICE}")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    if _digest(tensors, values) != digest:
        raise DamagedCheckpointError(f"{path}: is damaged: its content does not match its checksum. {ADVICE}")
    return tensors, values


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The open file, with errors of reading turned into `ModelError`.

    safetensors and then PyTorch open it by name; by the name of a descriptor both get the same file, even if a training
    replaces it in between.
    """
    try:
        with path.open("rb") as held, safetensors.safe_open(f"/dev/fd/{held.fileno()}", framework="pt") as file:
            yield file
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path}: is not a checkpoint of jointnmt. {ADVICE}") from error
    except safetensors.SafetensorError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read as a checkpoint ({error}). {ADVICE}") from error
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{path}: cannot be read as a checkpoint ({error}). {ADVICE}") from error


def _header(file: Any) -> tuple[int, str, dict[str, Any]]:
    """Version, checksum and values of an open file."""
    header = json.loads((file.metadata() or {})[HEADER])
    version, digest, values = header["version"], header["sha256"], header["values"]
    if not (isinstance(version, int) and isinstance(digest, str) and isinstance(values, dict)):
        raise TypeError("the header has values of wrong types")
    return version, digest, values


@dataclass(frozen=True)
class Outline:
    """The contents that a checkpoint's header lists, read without any tensor."""

    tensors: dict[str, tuple[torch.dtype | None, tuple[int, ...]]]
    """Type (None: not a type of models) and shape by name."""
    values: dict[str, Any]


def read_outline(path: Path) -> Outline:
    """The names, types and shapes of a checkpoint's tensors, and its values, without verification of its content.

    Raises:
        ModelError: if the file is missing, or in another format.
    """
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        tensors = {name: (TYPES.get(one.get_dtype()), tuple(one.get_shape())) for name, one in slices.items()}
        return Outline(tensors, _header(file)[2])


def read_values(path: Path) -> dict[str, Any]:
    """The values of a checkpoint, without tensors or verification; empty if they cannot be read."""
    try:
        with _opened(path) as file:
            return _header(file)[2]
    except ModelError:
        return {}


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous CPU tensors without shared memory: safetensors refuses tied weights."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        copy = tensor.detach().cpu().contiguous()
        separate[name] = copy.clone() if copy.data_ptr() in seen else copy
        seen.add(copy.data_ptr())
    return separate


def _digest(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> str:
    """SHA-256 of the values and of each tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        bytes_of = tensor.reshape(-1).view(torch.uint8)
        digest.update((ctypes.c_char * bytes_of.numel()).from_address(bytes_of.data_ptr()))
    return digest.hexdigest()
