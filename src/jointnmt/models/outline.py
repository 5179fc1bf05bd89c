"""A model's names and shapes without its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from jointnmt.models import TranslationModel, build_model
from jointnmt.models.common import FamilyConfig


def outline_model(config: FamilyConfig, source_vocabulary: int, target_vocabulary: int) -> TranslationModel:
    """The model of `build_model` on the meta device, without allocating memory.

    Raises:
        ConfigurationError: as in `build_model`.
    """
    with torch.device("meta"), _WithoutSymbols():
        return build_model(config, source_vocabulary, target_vocabulary)


class _WithoutSymbols(TorchFunctionMode):
    """Builds a model on the meta device without making torch import sympy, which takes a second.

    Random initialisation is skipped, as there are no values; `arange` is computed on the CPU.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if name.endswith(("normal_", "uniform_")):  # methods of tensors, or functions of torch.nn.init
            return args[0] if args else named["tensor"]
        if name == "arange":
            named["device"] = "cpu"
        return func(*args, **named)
