"""Models whose linear layers have 8-bit integer weights, for decoding on a CPU."""

from __future__ import annotations

import copy

from torch import nn

from jointnmt.models.interface import TranslationModel
from jointnmt.models.layers.attention import SelfAttention
from jointnmt.native.int8 import Int8Linear


def quantised(model: TranslationModel) -> TranslationModel:
    """A copy of `model` whose linear layers multiply 8-bit integers; the copy cannot be trained.

    Embeddings and the projection to the vocabulary stay as they are, and so do queries, keys and values of layers with
    lexical shortcuts, which use parts of their weights.
    """
    model = copy.deepcopy(model).requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            whole = not (isinstance(module, SelfAttention) and module.shortcut is not None and name == "qkv")
            if type(child) is nn.Linear and whole:
                setattr(module, name, Int8Linear(child))
    return model
