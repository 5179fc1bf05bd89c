"""Checks whether an operation may compute a layer from its weights instead of calling it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

Forward = TypeVar("Forward", bound=Callable[..., Any])

PYTORCH = (nn.Linear.forward, nn.LayerNorm.forward)


def fusable(forward: Forward) -> Forward:
    """Decorator: this `forward` takes a `Normed` as well as a tensor, and may be computed from the layer's weights."""
    forward.__dict__["fusable"] = forward  # itself, as a wrapper takes over what is here
    return forward


def takes_normed(layer: nn.Module) -> bool:
    """Whether `layer` accepts a `Normed`; not with hooks, which expect tensors."""
    forward = type(layer).forward
    return forward.__dict__.get("fusable") is forward and is_as_its_class(layer)


def is_fusable(layer: nn.Module) -> bool:
    """Whether operations may compute a linear layer or a layer norm from its weights.

    Not if it has another `forward` (as adapters do) or hooks (as PyTorch's pruning does): then it has to be called.
    """
    return takes_normed(layer) or (type(layer).forward in PYTORCH and is_as_its_class(layer))


def is_as_its_class(module: nn.Module) -> bool:
    """Whether a call of `module` is its class's `forward` alone: it has no `forward` of its own and no hooks."""
    has_hooks = (
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
    return not has_hooks and "forward" not in vars(module)
