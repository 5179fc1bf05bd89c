"""The models against the papers: parameter counts, and an independent float64 NumPy version of the equations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from jointnmt.errors import ConfigurationError
from jointnmt.models import build_model
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.embedding import sinusoids
from jointnmt.models.reformer import GridLayer, Reformer, ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from support.equations import HEADS, SIZES, away_from_initial_values, reformer, transformer

VOCABULARY = 17


@pytest.mark.parametrize(
    ("config", "expected"),
    [  # fact sheet, section 2: IWSLT, vocabularies 8,848 and 6,632, three tables
        (TransformerConfig(norm="post"), 16_719_872),
        (ReformerBaseConfig(num_layers=7), 16_783_872),
        (ReformerFastConfig(num_layers=5, prenet_layers=5), 17_574_144),
        (ReformerFastConfig(num_layers=7, prenet_layers=7, ffn_dim=1536), 27_828_480),
    ],
)
def test_parameter_counts_are_the_papers(config, expected) -> None:
    with torch.device("meta"):
        model = build_model(config, 8_848, 6_632)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_tying_needs_equal_vocabularies() -> None:
    with pytest.raises(ConfigurationError, match="10 and 11"):
        build_model(TransformerConfig(embeddings="all"), 10, 11)
    one_table = build_model(TransformerConfig(**SIZES, embeddings="all"), 10, 10)
    assert one_table.source_embedding.weight is one_table.output.weight is one_table.target_embedding.weight


def test_sinusoids_are_all_sines_then_all_cosines() -> None:
    signals = sinusoids(5, 6)[3:].numpy()
    rates = 10_000.0 ** (-np.arange(3) / 2)
    np.testing.assert_allclose(signals[0], np.concatenate([np.sin(3 * rates), np.cos(3 * rates)]), rtol=1e-6)
    np.testing.assert_allclose(signals[1], np.concatenate([np.sin(4 * rates), np.cos(4 * rates)]), rtol=1e-6)


def test_initial_weights_are_the_authors() -> None:
    torch.manual_seed(0)
    model = build_model(ReformerFastConfig(embed_dim=64, num_heads=4, ffn_dim=128), 500, 400)
    for table in (model.source_embedding.weight, model.target_embedding.weight, model.output.weight):
        assert not table[0].any()
        assert table[1:].std().item() == pytest.approx(64**-0.5, rel=0.03)
    layer = model.layers[0]
    bound = math.sqrt(6 / (64 + 3 * 64))
    for qkv in (layer.target_attention.qkv, model.prenet.layers[0].attention.qkv):
        assert 0.98 * bound < qkv.weight.abs().max() <= bound
        assert not qkv.bias.any()
    assert model.reduction.scores.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    cross = build_model(TransformerConfig(embed_dim=64, ffn_dim=128), 9, 9).layers[0].cross_attention
    for linear in (cross.query, cross.key_value):  # one [3E, E] block, though stored apart
        assert 0.98 * bound < linear.weight.abs().max() <= bound


@pytest.mark.parametrize("gradients", [True, False], ids=["with gradient", "without"])
@pytest.mark.parametrize("variant", ["pre", "post", "base", "fast", "max", "mean"])
def test_models_compute_the_equations(variant: str, gradients: bool) -> None:
    torch.manual_seed(3)
    layers, prenet = 2, 3
    grids = {"max": "max", "mean": "mean"}
    if variant in ("pre", "post"):
        config = TransformerConfig(**SIZES, encoder_layers=layers, decoder_layers=layers, norm=variant)
    elif variant == "fast":
        config = ReformerFastConfig(**SIZES, num_layers=layers, prenet_layers=prenet)
    else:
        config = ReformerBaseConfig(**SIZES, num_layers=layers, reduction=grids.get(variant, "attention"))
    model, w = away_from_initial_values(build_model(config, VOCABULARY, VOCABULARY))
    source, target = torch.tensor([[5, 9, 4, 16, 2]]), torch.tensor([[1, 7, 7, 12]])
    if variant in ("pre", "post"):
        expected = transformer(source[0].numpy(), target[0].numpy(), w, layers, variant == "pre")
    else:
        height = prenet if variant == "fast" else 0
        expected = reformer(source[0].numpy(), target[0].numpy(), w, layers, height, grids.get(variant, "attention"))
    with torch.set_grad_enabled(gradients):
        logits = model(source, target)
    np.testing.assert_allclose(logits[0].detach().numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("axes", [(), (1,), (2,), (1, 2)])
def test_shared_dropout_shares_its_mask_and_keeps_the_mean(axes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    dropout = SharedDropout(0.3, axes).train()
    x = torch.ones(40, 5, 6, 50)
    dropped = dropout(x)
    assert dropped.mean().item() == pytest.approx(1, abs=0.05)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    for axis in (1, 2):
        same = bool((dropped == dropped.select(axis, 0).unsqueeze(axis)).all())
        assert same == (axis in axes)
    assert dropout.eval()(x) is x


def test_the_grid_layer_drops_what_the_paper_says() -> None:
    """Dropout1d along S after target attention and along T after source attention; Dropout2d after feed-forward."""
    layer = GridLayer(ReformerBaseConfig(attention_dropout=0.1, hidden_dropout=0.2, dropout=0.3))
    source_axis, target_axis = 1, 2
    assert layer.target_dropout.shared_axes == (source_axis,)
    assert layer.source_dropout.shared_axes == (target_axis,)
    assert set(layer.ffn_dropout.shared_axes) == {source_axis, target_axis}
    assert set(layer.source_ffn.hidden_dropout.shared_axes) == {source_axis, target_axis}
    ordinary = GridLayer(ReformerBaseConfig(shared_dropout=False))
    assert ordinary.target_dropout.shared_axes == ordinary.ffn_dropout.shared_axes == ()


def test_dropped_attention_weights_are_dropped_along_the_kept_axis() -> None:
    """A weight is dropped for all positions of the axis that attention does not aggregate, or for none."""
    torch.manual_seed(1)
    layer = GridLayer(ReformerBaseConfig(**{**SIZES, "attention_dropout": 0.5})).train()
    weights = torch.ones(2, 7, HEADS, 5, 5)
    dropped = layer.target_attention.dropout(weights)
    assert (dropped == dropped[:, :1]).all()
    assert 0 < (dropped == 0).float().mean() < 1


def test_a_reformer_may_have_other_grid_layers_and_another_grid() -> None:
    class Rolled(GridLayer):
        def forward(self, *arguments: Any) -> Tensor:
            return super().forward(*arguments).roll(1, dims=-1)

    class Mine(Reformer):
        def make_layer(self, index: int) -> GridLayer:
            return Rolled(self.config) if index == 1 else super().make_layer(index)

        def join(self, source_side: Tensor, target_side: Tensor) -> Tensor:
            return source_side * target_side

    config = ReformerFastConfig(embed_dim=8, num_heads=2, ffn_dim=8, num_layers=2, prenet_layers=1)
    own, plain = Mine(config, 9, 9).eval(), Reformer(config, 9, 9).eval()
    plain.load_state_dict(own.state_dict())
    source, target = torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6]])
    logits, state = own(source, target), own.start(source)
    assert not torch.allclose(logits, plain(source, target))
    with torch.no_grad():
        for position, ids in enumerate(target.unbind(1)):
            found, state = own.step(ids, state)
            torch.testing.assert_close(found, logits[:, position])
