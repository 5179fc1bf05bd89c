"""Which layers an operation may compute from their weights, instead of calling them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

Forward = TypeVar("Forward", bound=Callable[..., Any])

PYTORCH = (nn.Linear.forward, nn.LayerNorm.forward)


def fusable(forward: Forward) -> Forward:
    """Declare of a layer's `forward` that it computes what its weights say, of a `Normed` as of a tensor."""
    forward.__dict__["is_fusable"] = True
    return forward


def takes_normed(layer: nn.Module) -> bool:
    """Whether `layer` may be given a `Normed`. With hooks it is given tensors, as these expect them."""
    return hasattr(type(layer).forward, "is_fusable") and _is_as_its_class(layer)


def is_fusable(layer: nn.Module) -> bool:
    """Whether operations may compute a linear layer or a layer norm from its weights.

    Not if it has a `forward` of its own, as adapters do, nor hooks, by which PyTorch prunes: then it has to be called.
    """
    return takes_normed(layer) or (type(layer).forward in PYTORCH and _is_as_its_class(layer))


def _is_as_its_class(layer: nn.Module) -> bool:
    return not has_hooks(layer) and "forward" not in vars(layer)


def has_hooks(module: nn.Module) -> bool:
    """Whether something else is called with `module`."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
