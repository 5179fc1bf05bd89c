"""The type checker that jaxtyping calls for every function of the package while the tests run.

It checks the shapes of tensors and arrays, and leaves everything else in the annotations to mypy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import EllipsisType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from beartype import beartype
from jaxtyping import AbstractArray

Function = TypeVar("Function", bound=Callable[..., Any])

KEPT = (NoneType, EllipsisType)


def check_shapes(function: Function) -> Function:
    """Let beartype check the shapes in the annotations of a function."""
    hints = {name: _only_shapes(hint) for name, hint in function.__annotations__.items() if _has_shape(hint)}
    if not hints:
        return function
    function.__annotations__ = hints
    return beartype(function)


def _has_shape(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return get_origin(hint) is not Callable and any(map(_has_shape, get_args(hint)))


def _only_shapes(hint: Any) -> Any:
    """The annotation with `Any` in the place of everything that is neither a shape nor around one."""
    if hint in (None, ...) or hint in KEPT:
        return hint
    if not _has_shape(hint):
        return Any
    parts = tuple(map(_only_shapes, get_args(hint)))
    if not parts:
        return hint
    origin = get_origin(hint)
    return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007 (parts is a tuple)
