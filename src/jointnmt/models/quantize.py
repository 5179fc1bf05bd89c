"""Models prepared for inference: half precision, 8-bit integers, packed weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import nn

from jointnmt.models.interface import TranslationModel
from jointnmt.models.layers.attention import SelfAttention
from jointnmt.models.layers.embedding import VocabularyProjection
from jointnmt.models.layers.linear import Linear
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.ops import BFloat16Linear, Int8Linear

HalfPrecision = Literal["bfloat16", "float16", "int8"]
Layer = Callable[[Linear | VocabularyProjection | LayerNorm], nn.Module]


@torch.no_grad()
def prepare_for_inference(model: TranslationModel, precision: HalfPrecision) -> TranslationModel:
    """A copy of `model` to decode with in mixed precision; it cannot be trained.

    Its linear layers have weights of half precision or, on a CPU, of 8-bit integers, but for the projection to the
    vocabulary, which then is in bfloat16. In bfloat16 on a CPU and in 8-bit integers they are packed for the kernels;
    those for queries, keys and values with lexical shortcuts, of which parts may be used, stay as they are, and in
    bfloat16 all do on a machine without the kernels. Where none are packed, layer norms are in half precision, too. All
    other weights, such as the embeddings, are the model's own.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    packs = precision == "int8" or (precision == "bfloat16" and next(model.parameters()).device.type == "cpu")
    half: Layer = BFloat16Linear.of if packs else partial(_in_type, dtype=getattr(torch, precision))
    linear: Callable[[Linear], nn.Module] = Int8Linear if precision == "int8" else half
    model = copy.deepcopy(model, shared)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            in_parts = isinstance(module, SelfAttention) and module.shortcut is not None and name == "qkv"
            if isinstance(child, Linear) and not (packs and in_parts):
                setattr(module, name, linear(child))
            elif isinstance(child, VocabularyProjection) or (isinstance(child, LayerNorm) and not packs):
                setattr(module, name, half(child))
    return model


def _in_type(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copy.deepcopy(layer).to(dtype)
