"""A stand-in for a GPU: a device whose tensors are stored on the CPU, but do not mix with the CPU's own.

PyTorch knows it as "fake" for the rest of the process, so import this in a process of its own. It counts the points
where a GPU's host would wait. It lacks memory, streams and kernels of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

waits: Counter[str] = Counter()
"""How often the host needed a result of the device, by operation."""

WAITING = (
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::equal",
    "aten::_unique2",
    "aten::masked_select",
    "aten::repeat_interleave",
)
CROSSING = ("aten::copy_", "aten::_to_copy")
INDEXING = ("aten::index", "aten::index_put_", "aten::index_put")


class FakeTensor(torch.Tensor):
    """A tensor of the device; `host` is its content."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor) -> FakeTensor:
        place = {"strides": host.stride(), "storage_offset": host.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(cls, host.shape, dtype=host.dtype, device=FAKE, **place)

    def __init__(self, host: Tensor) -> None:
        self.host = host

    def tolist(self) -> Any:
        waits["tolist"] += 1
        return self.host.tolist()

    def numpy(self, *arguments: Any, **settings: Any) -> NoReturn:
        raise TypeError("NumPy reads tensors of the CPU only")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class FakeAccelerator(TorchDispatchMode):
    """Context in which tensors can be made on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do the operation, unless it mixes devices in a way that a GPU would refuse."""
    name, wanted = func._schema.name, kwargs.get("device")
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    some_fake = any(map(_is_fake, tensors))
    ends_on_device = some_fake if wanted is None else torch.device(wanted).type == FAKE.type
    if name == "aten::copy_":
        ends_on_device = _is_fake(args[0])
    if name in CROSSING:
        begins_on_device = _is_fake(args[1] if name == "aten::copy_" else args[0])
        if begins_on_device and not ends_on_device:
            waits["to the CPU"] += 1
        elif ends_on_device and not begins_on_device and not (kwargs.get("non_blocking") or args[2:3] == (True,)):
            waits["to the device"] += 1
    elif some_fake:
        _check_mixture(name, args, tensors)
        waits[name] += name in WAITING
    args, kwargs = tree_map(_to_host, (args, kwargs))
    if wanted is not None:
        kwargs["device"] = torch.device("cpu")
    result = func(*args, **kwargs)
    if not ends_on_device:
        return result
    same = {id(_to_host(each)): each for each in tensors}  # the result of an operation in place

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return same[id(value)] if id(value) in same else FakeTensor(value)

    return tree_map(fake, result)


def _check_mixture(name: str, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
    """Refuse tensors of the CPU, except single numbers and indices, as a GPU does."""
    if name in INDEXING and _is_fake(args[0]):
        indices = [each for each in args[1] if each is not None]
        # Indices are copied to the device; those of a mask are counted first.
        waits["index"] += any(not _is_fake(each) or each.dtype == torch.bool for each in indices)
        tensors = [each for each in tensors if not any(each is index for index in indices)]
    into_host = name.endswith("_") and not _is_fake(args[0])
    host = [tuple(each.shape) for each in tensors if not _is_fake(each)]
    if into_host or any(host):
        raise RuntimeError(f"{name}: tensors on two devices, {host} on the CPU")


def _is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


def _to_host(value: Any) -> Any:
    return value.host if _is_fake(value) else value


class _Backend(backend_registration._DummyBackendModule):
    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


backend_registration._setup_privateuseone_for_python_backend("fake", backend_module=_Backend())
FAKE = torch.device("fake", 0)
_operations, _casting = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
for _name in ("empty.memory_format", "empty_strided", "copy_", "_copy_from", "_to_copy"):  # needed by torch.tensor
    _packet, _, _overload = _name.partition(".")
    _operation = getattr(getattr(torch.ops.aten, _packet), _overload or "default")
    _operations.impl(_name, lambda *args, _func=_operation, **kwargs: compute(_func, args, kwargs), "PrivateUse1")
_casting.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
