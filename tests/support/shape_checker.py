"""The type checker that jaxtyping calls for the package's functions during tests.

It checks the shapes of tensors and arrays, and leaves all other annotations to mypy. Functions without shapes are left
unchanged, and only the first of equal calls is checked: to check each would double the time of the tests.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial, wraps
from types import EllipsisType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import jaxtyping
import numpy as np
from beartype import beartype
from jaxtyping import AbstractArray, AbstractDtype
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

KEPT = (NoneType, EllipsisType)

jaxtyped = jaxtyping.jaxtyped


def check_shapes(function: Function) -> Function:
    """Let beartype check the shapes in the annotations of a function."""
    hints = {name: _only_shapes(hint) for name, hint in function.__annotations__.items() if _has_shape(hint)}
    if not hints:
        return function
    if "return" in hints:  # jaxtyping checks the parameters before, by a function of their own
        hints = {"return": hints["return"]}
    function.__annotations__ = hints
    return beartype(function)


def wrap_where_shapes_are(decorated: Any = None, *, typechecker: Any) -> Any:
    """jaxtyping's decorator of functions and classes, applied to those with shapes in their annotations."""
    if decorated is None:
        return partial(wrap_where_shapes_are, typechecker=typechecker)
    if not _mentions_shape(decorated):
        return decorated
    checked = jaxtyped(decorated, typechecker=typechecker)
    return _once_for_all_alike(checked, decorated) if inspect.isfunction(decorated) else checked


def _once_for_all_alike(checked: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, checked only in calls with new forms of arguments."""
    passed = set()

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        forms = (*map(_form, args), *((name, _form(value)) for name, value in kwargs.items()))
        if forms in passed:
            return function(*args, **kwargs)
        result = checked(*args, **kwargs)
        passed.add(forms)
        return result

    return call


def _form(value: Any) -> Any:
    """What a check depends on: the shape and element type of a tensor or array, a number, the type of all else."""
    if isinstance(value, int):
        return value
    if isinstance(value, (Tensor, np.ndarray)):
        return type(value), tuple(value.shape), value.dtype
    if isinstance(value, (tuple, list)):
        return type(value), *map(_form, value)
    return type(value)


def _mentions_shape(decorated: Any) -> bool:
    """Whether annotations, which are still strings, have the name of a shape: `Float`, or `Grid` made from it."""
    owners = [one for one in decorated.__mro__ if one is not object] if inspect.isclass(decorated) else [decorated]
    return any(
        _is_shape(vars(sys.modules[owner.__module__]).get(word))
        for owner in owners
        for hint in inspect.get_annotations(owner).values()
        for word in re.findall(r"\w+", str(hint))
    )


def _is_shape(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, (AbstractArray, AbstractDtype))


def _has_shape(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return get_origin(hint) is not Callable and any(map(_has_shape, get_args(hint)))


def _only_shapes(hint: Any) -> Any:
    """The annotation with `Any` in place of everything that neither is a shape nor contains one."""
    if hint in (None, ...) or hint in KEPT:
        return hint
    if not _has_shape(hint):
        return Any
    parts = tuple(map(_only_shapes, get_args(hint)))
    if not parts:
        return hint
    origin = get_origin(hint)
    return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007 (parts is a tuple)


jaxtyping.jaxtyped = wrap_where_shapes_are  # type: ignore[assignment]
