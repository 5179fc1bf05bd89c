"""Names of weights, which must stay the same so that later code can read today's checkpoints."""

from __future__ import annotations

import pytest

from jointnmt.models import ModelConfig, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig

SIZES = {"embed_dim": 4, "num_heads": 1, "ffn_dim": 4}
TABLES = """
output.weight
source_embedding.weight
target_embedding.weight
"""
TRANSFORMER = """
encoder.layers.0.attention.output.bias
encoder.layers.0.attention.output.weight
encoder.layers.0.attention.qkv.bias
encoder.layers.0.attention.qkv.weight
encoder.layers.0.attention_residual.norm.bias
encoder.layers.0.attention_residual.norm.weight
encoder.layers.0.ffn.hidden.bias
encoder.layers.0.ffn.hidden.weight
encoder.layers.0.ffn.output.bias
encoder.layers.0.ffn.output.weight
encoder.layers.0.ffn_residual.norm.bias
encoder.layers.0.ffn_residual.norm.weight
encoder.norm.bias
encoder.norm.weight
layers.0.cross_attention.key_value.bias
layers.0.cross_attention.key_value.weight
layers.0.cross_attention.output.bias
layers.0.cross_attention.output.weight
layers.0.cross_attention.query.bias
layers.0.cross_attention.query.weight
layers.0.cross_residual.norm.bias
layers.0.cross_residual.norm.weight
layers.0.ffn.hidden.bias
layers.0.ffn.hidden.weight
layers.0.ffn.output.bias
layers.0.ffn.output.weight
layers.0.ffn_residual.norm.bias
layers.0.ffn_residual.norm.weight
layers.0.self_attention.output.bias
layers.0.self_attention.output.weight
layers.0.self_attention.qkv.bias
layers.0.self_attention.qkv.weight
layers.0.self_residual.norm.bias
layers.0.self_residual.norm.weight
norm.bias
norm.weight
"""
GRID = """
layers.0.source_attention.output.bias
layers.0.source_attention.output.weight
layers.0.source_attention.qkv.bias
layers.0.source_attention.qkv.weight
layers.0.source_ffn.hidden.bias
layers.0.source_ffn.hidden.weight
layers.0.source_ffn.output.bias
layers.0.source_ffn.output.weight
layers.0.source_ffn_norm.bias
layers.0.source_ffn_norm.weight
layers.0.source_norm.bias
layers.0.source_norm.weight
layers.0.target_attention.output.bias
layers.0.target_attention.output.weight
layers.0.target_attention.qkv.bias
layers.0.target_attention.qkv.weight
layers.0.target_ffn.hidden.bias
layers.0.target_ffn.hidden.weight
layers.0.target_ffn.output.bias
layers.0.target_ffn.output.weight
layers.0.target_ffn_norm.bias
layers.0.target_ffn_norm.weight
layers.0.target_norm.bias
layers.0.target_norm.weight
reduction.input_norm.bias
reduction.input_norm.weight
reduction.output_norm.bias
reduction.output_norm.weight
reduction.scores.weight
"""
PRENET = """
prenet.layers.0.attention.output.bias
prenet.layers.0.attention.output.weight
prenet.layers.0.attention.qkv.bias
prenet.layers.0.attention.qkv.weight
prenet.layers.0.attention_residual.norm.bias
prenet.layers.0.attention_residual.norm.weight
prenet.layers.0.ffn.hidden.bias
prenet.layers.0.ffn.hidden.weight
prenet.layers.0.ffn.output.bias
prenet.layers.0.ffn.output.weight
prenet.layers.0.ffn_residual.norm.bias
prenet.layers.0.ffn_residual.norm.weight
prenet.norm.bias
prenet.norm.weight
"""


SHORTCUTS = """
layers.0.source_attention.shortcut.gate_bias
layers.0.source_attention.shortcut.lexical.weight
layers.0.target_attention.shortcut.gate_bias
layers.0.target_attention.shortcut.lexical.weight
prenet.layers.0.attention.shortcut.gate_bias
prenet.layers.0.attention.shortcut.lexical.weight
"""
CROSS_SHORTCUT = """
layers.0.cross_attention.shortcut.gate_bias
layers.0.cross_attention.shortcut.lexical.weight
"""
CROSS = ShortcutConfig(places=("cross",))


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (TransformerConfig(**SIZES, encoder_layers=1, decoder_layers=1), TABLES + TRANSFORMER),
        (ReformerBaseConfig(**SIZES, num_layers=1), TABLES + GRID),
        (ReformerFastConfig(**SIZES, num_layers=1, prenet_layers=1), TABLES + GRID + PRENET),
        (
            ReformerFastConfig(**SIZES, num_layers=1, prenet_layers=1, shortcuts=ShortcutConfig(kind="fusion")),
            TABLES + GRID + PRENET + SHORTCUTS,
        ),
        (
            TransformerConfig(**SIZES, encoder_layers=1, decoder_layers=1, shortcuts=CROSS),
            TABLES + TRANSFORMER + CROSS_SHORTCUT,
        ),
    ],
    ids=lambda value: value.family if not isinstance(value, str) else "",
)
def test_names_of_weights_stay(config: ModelConfig, names: str) -> None:
    assert sorted(build_model(config, 9, 9).state_dict()) == sorted(names.split())
