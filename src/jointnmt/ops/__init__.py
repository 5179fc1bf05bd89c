"""The operations of models: one function each, plain form and kernel side by side.

The plain form defines an operation; the kernel computes the same in fewer passes over memory. `backend` chooses between
them for tests and measurements. Few other modules depend on the kernels: for packing (`models/quantize.py`), for replay
and capture (`models/layers/cache.py`, `models/layers/slots.py`, `training/trainer.py`), and for measured rates
(`translator/precision.py`).
"""

from __future__ import annotations

from torch import Tensor

from jointnmt.ops.attention import append_to_cache, attention, axial_attention, cached_attention
from jointnmt.ops.autocast import to_autocast_dtype
from jointnmt.ops.backend import backend
from jointnmt.ops.dropout import dropout, dropout_mask, masks_of_rows
from jointnmt.ops.fusing import fusable, is_fusable, takes_normed
from jointnmt.ops.gating import gated_kv
from jointnmt.ops.grid import grid_of_sides
from jointnmt.ops.linear import apply_linear, linear, linear_update, mlp_update
from jointnmt.ops.masks import AttentionMask, OwnSlots
from jointnmt.ops.native.allocator import allocator
from jointnmt.ops.native.packed import BFloat16Linear, Float32Linear, Int8Linear
from jointnmt.ops.norm import Biased, Normed, add_norm, dropout_add, layer_norm, normed
from jointnmt.ops.pooling import attention_pool
from jointnmt.ops.positions import MultiStepDecoder, advance_positions
from jointnmt.ops.search import (
    BeamStep,
    Continuations,
    Hypotheses,
    advance_beams,
    extend_beams,
    restrict,
)
from jointnmt.ops.vocabulary import cross_entropy, divergence, log_softmax, topk
from jointnmt.ops.waiting import adapt_waiting

__all__ = [
    "AttentionMask",
    "BFloat16Linear",
    "BeamStep",
    "Biased",
    "Continuations",
    "Float32Linear",
    "Hypotheses",
    "Int8Linear",
    "MultiStepDecoder",
    "Normed",
    "OwnSlots",
    "adapt_waiting",
    "add_norm",
    "advance_beams",
    "advance_positions",
    "append_to_cache",
    "apply_linear",
    "attention",
    "attention_pool",
    "axial_attention",
    "backend",
    "cache_memory",
    "cached_attention",
    "cross_entropy",
    "divergence",
    "dropout",
    "dropout_add",
    "dropout_mask",
    "extend_beams",
    "fusable",
    "gated_kv",
    "grid_of_sides",
    "is_fusable",
    "layer_norm",
    "linear",
    "linear_update",
    "log_softmax",
    "masks_of_rows",
    "mlp_update",
    "normed",
    "restrict",
    "takes_normed",
    "to_autocast_dtype",
    "topk",
]


def cache_memory(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """An uninitialised tensor for data that outlives a decoding position, with dtype and device of `like`.

    On the CPU it comes from the caching allocator.
    """
    return allocator.empty(shape, like.dtype) if like.device.type == "cpu" else like.new_empty(shape)
