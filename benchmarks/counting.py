"""Useful operations: those of the matrix products in the models' equations, without padding.

A product of an [m, k] and a [k, n] matrix is 2 m k n operations. docs/performance.md has the formulas and their
reasons. Lengths are numbers for one sentence pair, or arrays for many; they include the end mark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from jointnmt.models import ModelConfig
from jointnmt.models.common import FamilyConfig
from jointnmt.models.reformer import ReformerConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig

Count = npt.NDArray[np.int64] | int
"""Operations or lengths: one number for each sentence pair."""


def training_operations(config: ModelConfig, vocabulary: int, source: Any, target: Any) -> Count:
    """Operations of forward and backward pass: each product of the former has two in the latter."""
    return 3 * forward_operations(config, vocabulary, source, target)


def forward_operations(config: ModelConfig, vocabulary: int, source: Any, target: Any) -> Count:
    """Operations of the logits of every target position, teacher-forced."""
    fixed, per_past = _position(config, vocabulary, source)
    return _source_side(config, source) + target * fixed + _pasts(target) * per_past


def decoding_operations(config: ModelConfig, vocabulary: int, source: Any, target: Any, beam_size: int) -> Count:
    """Operations of beam search that reads `target` positions: one hypothesis at the first, K at each other."""
    fixed, per_past = _position(config, vocabulary, source)
    positions = 1 + beam_size * (target - 1)
    pasts = 1 + beam_size * (_pasts(target) - 1)
    return _source_side(config, source) + positions * fixed + pasts * per_past


def _pasts(length: Any) -> Any:
    """1 + 2 + ... + length: the sum of the positions that each position reads, up to itself."""
    return length * (length + 1) // 2


def _attention(config: FamilyConfig) -> int:
    """Operations of the four projections of a position or cell: query, key, value, output."""
    return 8 * config.embed_dim**2


def _feed_forward(config: FamilyConfig) -> int:
    return 4 * config.embed_dim * config.ffn_dim


def _read(config: FamilyConfig) -> int:
    """Operations of one query that reads one position: its score and its term of the weighted sum; all heads."""
    return 4 * config.embed_dim


def _encoder(config: FamilyConfig, layers: int, source: Any) -> Any:
    return layers * (source * (_attention(config) + _feed_forward(config)) + source**2 * _read(config))


def _source_side(config: ModelConfig, source: Any) -> Any:
    """Operations that depend on the source alone, and are computed once for a sentence."""
    if isinstance(config, TransformerConfig):
        keys_and_values = config.decoder_layers * source * _attention(config) // 2
        return _encoder(config, config.encoder_layers, source) + keys_and_values
    if isinstance(config, ReformerFastConfig):
        return _encoder(config, config.prenet_layers, source)
    return 0 * source


def _position(config: ModelConfig, vocabulary: int, source: Any) -> tuple[Any, Any]:
    """Operations of one target position of one hypothesis: the constant part, and that of each past position."""
    output = 2 * config.embed_dim * vocabulary
    if isinstance(config, TransformerConfig):
        # Self-attention, query and output of cross-attention, feed-forward; cross-attention reads the source.
        layer = _attention(config) * 3 // 2 + _feed_forward(config) + source * _read(config)
        return config.decoder_layers * layer + output, config.decoder_layers * _read(config)
    assert isinstance(config, ReformerConfig)
    layer = source * 2 * (_attention(config) + _feed_forward(config)) + source**2 * _read(config)
    scores = 2 * source * config.embed_dim**2 if config.reduction == "attention" else 0
    return config.num_layers * layer + scores + output, config.num_layers * source * _read(config)
