"""Models whose linear layers hold their weights as decoding on a CPU reads them fastest."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from jointnmt.models.interface import TranslationModel
from jointnmt.models.layers.attention import SelfAttention
from jointnmt.models.layers.embedding import VocabularyProjection
from jointnmt.native.linear import BFloat16Linear, Int8Linear


@torch.no_grad()
def for_decoding(model: TranslationModel, precision: Literal["bfloat16", "int8"]) -> TranslationModel:
    """A copy of `model` to decode with in mixed precision; it cannot be trained.

    Its linear layers multiply numbers of bfloat16 or, but for the projection to the vocabulary, 8-bit integers. All
    other weights, such as the embeddings, are the model's own. Layers that use parts of their weights, the queries,
    keys and values with lexical shortcuts, stay as they are, and in bfloat16 all do on a machine without kernels.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, shared)
    kind: Callable[[nn.Linear], nn.Module] = Int8Linear if precision == "int8" else BFloat16Linear.of
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            whole = not (isinstance(module, SelfAttention) and module.shortcut is not None and name == "qkv")
            if type(child) is nn.Linear and whole:
                setattr(module, name, kind(child))
            elif isinstance(child, VocabularyProjection):
                setattr(module, name, BFloat16Linear.of(child))
    return model
