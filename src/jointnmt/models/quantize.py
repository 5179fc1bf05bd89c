"""Models prepared for inference: packed weights, half precision, 8-bit integers."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn

from jointnmt.models.interface import TranslationModel
from jointnmt.models.layers.embedding import TokenEmbedding, VocabularyProjection
from jointnmt.models.layers.linear import Linear
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.layers.shortcut import Shortcut
from jointnmt.ops import BFloat16Linear, Float32Linear, Int8Linear, is_fusable
from jointnmt.ops.native.packed import has_int8_gemm

logger = logging.getLogger(__name__)

Precision = Literal["float32", "bfloat16", "float16", "int8"]
PACKED = {"float32": Float32Linear, "bfloat16": BFloat16Linear, "int8": Int8Linear}


@torch.no_grad()
def prepare_for_inference(model: TranslationModel, precision: Precision) -> TranslationModel:
    """A copy of `model` for decoding, which cannot be trained; the model itself if there is nothing to prepare.

    It stays on its device. In half precision and int8 it has to run under autocast to float16 or bfloat16, as in
    `Translator`. Its linear layers have weights of this precision. With int8, the projection to the vocabulary has
    bfloat16 weights if there are no kernels for 8-bit integers, and its own without any kernels. On a CPU, weights are
    packed for the kernels, so that a translation does not depend on its batch; without kernels, float32 and bfloat16
    weights stay unchanged. Where none are packed, layer norms are in half precision, too. All other weights, such as
    the embeddings, are shared with the model; so are those of PyTorch's linear layers, and of layers with hooks or
    another `forward`, with a warning unless the precision is float32.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    packs = precision in PACKED and (precision == "int8" or on_cpu)
    half = partial(_in_type, dtype=getattr(torch, "bfloat16" if precision == "int8" else precision))
    linear = PACKED[precision].of if packs else half
    whole = precision != "int8" or (on_cpu and has_int8_gemm())
    projection = PACKED[precision if whole else "bfloat16"].of if packs else half

    def prepared(module: nn.Module) -> nn.Module:
        if _can_be_prepared(module):
            return projection(module) if isinstance(module, VocabularyProjection) else linear(module)
        return half(module) if isinstance(module, LayerNorm) and not packs else module

    left = [name for name, each in _with_weights(model) if not _can_be_prepared(each)]
    if left and precision != "float32":
        logger.warning(
            "%d layers keep the model's precision: only jointnmt's Linear and VocabularyProjection, without hooks or "
            "another forward, can be prepared for %s: %s",
            *(len(left), precision, ", ".join(left)),
        )
    replaced = {id(module): new for module in model.modules() if (new := prepared(module)) is not module}
    if not replaced:
        return model
    # Also what a module keeps for a term of the loss, which cannot be copied; without the graph that it is part of.
    tensors = (tensor for module in model.modules() for tensor in _tensors_in(vars(module)))
    shared = {id(tensor): tensor if tensor.is_leaf else tensor.detach() for tensor in tensors}
    return copy.deepcopy(model, shared | replaced)  # entries of the table are used, not copied


def kernels_multiply(model: nn.Module, precision: Precision) -> bool:
    """Whether the kernels compute all matrix products of a model prepared for inference in this precision."""
    layers = [each for _, each in _with_weights(model)]
    if precision not in PACKED or not all(map(_can_be_prepared, layers)):
        return False
    if precision == "int8" and not has_int8_gemm():
        return False
    packed = BFloat16Linear if precision == "int8" else PACKED[precision]  # Int8Linear can do without kernels
    return all(packed.packs(cast(Tensor, each.weight)) for each in layers)


def warn_of_slow_products(model: nn.Module, precision: Precision) -> None:
    """Log a warning if this precision is likely to be slower than float32: on a CPU, without the kernels' products."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    if on_cpu and precision != "float32" and not kernels_multiply(model, precision):
        logger.warning(
            "precision %s: the CPU kernels do not compute its matrix products here, and without them it is slower than "
            "float32 on many processors. With precision auto the faster of float32 and bfloat16 is taken.",
            precision,
        )


def _can_be_prepared(layer: nn.Module) -> bool:
    """Whether it is a linear layer or projection of this package, without hooks or another `forward`."""
    return isinstance(layer, Linear | VocabularyProjection) and is_fusable(layer)


def _with_weights(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that multiply by a matrix, with their names; neither embedding tables nor shortcuts' gate biases."""
    for name, module in model.named_modules():
        own = any(each.dim() > 1 for each in module.parameters(recurse=False))
        if own and not isinstance(module, TokenEmbedding | Shortcut):
            yield name, module


def _tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(each)


def _in_type(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    weights = next(layer.parameters())
    return layer if weights.dtype == dtype else copy.deepcopy(layer).to(dtype)
