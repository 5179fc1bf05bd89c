"""The models against the papers: parameter counts, and an independent float64 NumPy version of the equations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from jointnmt.errors import ConfigurationError
from jointnmt.models import AttentionMaps, TranslationModel, build_model
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.embedding import sinusoids
from jointnmt.models.reformer import GridLayer, ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig

Array = np.ndarray
EMBED, HEADS, FFN, VOCABULARY = 8, 2, 12, 17
SIZES = {"embed_dim": EMBED, "num_heads": HEADS, "ffn_dim": FFN, "dropout": 0.0}


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
    signals = sinusoids(3, 2, 6).numpy()
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


# The equations in NumPy. Arrays of one sentence: sequences [L, E], the grid [S, T, E].


def norm(x: Array, w: dict[str, Array], name: str) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x: Array, w: dict[str, Array], name: str) -> Array:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def attention(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """Eq. 2 for each head, scaled by the size of a head; weights [H, Lq, Lk]."""
    size, heads, maps = EMBED // HEADS, [], []
    for h in range(HEADS):
        part = slice(h * size, (h + 1) * size)
        scores = q[:, part] @ k[:, part].T / np.sqrt(size)
        if causal:
            scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
        maps.append(softmax(scores, 1))
        heads.append(maps[-1] @ v[:, part])
    return np.concatenate(heads, 1), np.stack(maps)


def self_attention(x: Array, w: dict[str, Array], name: str, causal: bool = False) -> Array:
    mixed, _ = attention(*np.split(linear(x, w, f"{name}.qkv"), 3, axis=1), causal)
    return linear(mixed, w, f"{name}.output")


def ffn(x: Array, w: dict[str, Array], name: str) -> Array:
    """Eq. 3."""
    return linear(np.maximum(0, linear(x, w, f"{name}.hidden")), w, f"{name}.output")


def embed(ids: Array, w: dict[str, Array], name: str) -> Array:
    rates = 10_000.0 ** (-np.arange(EMBED // 2) / (EMBED // 2 - 1))
    angles = np.arange(len(ids))[:, None] * rates
    return np.sqrt(EMBED) * w[f"{name}.weight"][ids] + np.concatenate([np.sin(angles), np.cos(angles)], 1)


def encoder(x: Array, w: dict[str, Array], name: str, layers: int, pre: bool) -> Array:
    def residual(x: Array, layer: str, norm_name: str, f) -> Array:
        full = f"{layer}.{norm_name}.norm"
        return x + f(norm(x, w, full)) if pre else norm(x + f(x), w, full)

    for i in range(layers):
        layer = f"{name}.layers.{i}"
        x = residual(x, layer, "attention_residual", lambda y, n=layer: self_attention(y, w, f"{n}.attention"))
        x = residual(x, layer, "ffn_residual", lambda y, n=layer: ffn(y, w, f"{n}.ffn"))
    return norm(x, w, f"{name}.norm") if pre else x


def transformer(source: Array, target: Array, w: dict[str, Array], layers: int, pre: bool) -> Array:
    memory = encoder(embed(source, w, "source_embedding"), w, "encoder", layers, pre)
    x = embed(target, w, "target_embedding")
    for i in range(layers):
        name = f"layers.{i}"

        def cross(y: Array, name: str = f"{name}.cross_attention") -> Array:
            k, v = np.split(linear(memory, w, f"{name}.key_value"), 2, axis=1)
            return linear(attention(linear(y, w, f"{name}.query"), k, v, False)[0], w, f"{name}.output")

        blocks = [
            ("self_residual", lambda y, n=name: self_attention(y, w, f"{n}.self_attention", causal=True)),
            ("cross_residual", cross),
            ("ffn_residual", lambda y, n=name: ffn(y, w, f"{n}.ffn")),
        ]
        for residual, f in blocks:
            full = f"{name}.{residual}.norm"
            x = x + f(norm(x, w, full)) if pre else norm(x + f(x), w, full)
    return (norm(x, w, "norm") if pre else x) @ w["output.weight"].T


def reformer(source: Array, target: Array, w: dict[str, Array], layers: int, prenet: int, kind: str) -> Array:
    side = embed(source, w, "source_embedding")
    if prenet:
        side = encoder(side, w, "prenet", prenet, pre=True)
    grid = side[:, None] + embed(target, w, "target_embedding")[None]  # Eq. 4
    for i in range(layers):  # four sub-layers; Eq. 5 is the loop over the axis that attention does not aggregate
        name = f"layers.{i}"
        y = norm(grid, w, f"{name}.target_norm")
        grid = grid + np.stack([self_attention(row, w, f"{name}.target_attention", causal=True) for row in y])
        grid = grid + ffn(norm(grid, w, f"{name}.target_ffn_norm"), w, f"{name}.target_ffn")
        y = norm(grid, w, f"{name}.source_norm").swapaxes(0, 1)
        grid = grid + np.stack([self_attention(column, w, f"{name}.source_attention") for column in y], axis=1)
        grid = grid + ffn(norm(grid, w, f"{name}.source_ffn_norm"), w, f"{name}.source_ffn")
    x = norm(grid, w, "reduction.input_norm")
    reductions = {
        "attention": lambda: (softmax(x @ w["reduction.scores.weight"].T, 0) * x).sum(0),  # Eq. 6
        "max": lambda: x.max(0),
        "mean": lambda: x.mean(0),
    }
    return norm(reductions[kind](), w, "reduction.output_norm") @ w["output.weight"].T


def away_from_initial_values(model: TranslationModel) -> tuple[TranslationModel, dict[str, Array]]:
    generator = torch.Generator().manual_seed(11)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model, {name: tensor.numpy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("gradients", [True, False], ids=["fast path", "plain path"])
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
def test_shared_dropout_shares_its_noise_and_keeps_the_mean(axes: tuple[int, ...]) -> None:
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
    """A weight is dropped for all places of the axis that attention does not aggregate, or for none of them."""
    torch.manual_seed(1)
    layer = GridLayer(ReformerBaseConfig(**{**SIZES, "attention_dropout": 0.5})).train()
    weights = torch.ones(2, 7, HEADS, 5, 5)
    dropped = layer.target_attention.dropout(weights)
    assert (dropped == dropped[:, :1]).all()
    assert 0 < (dropped == 0).float().mean() < 1


def test_decoding_can_return_attention_of_both_axes() -> None:
    model, _ = away_from_initial_values(build_model(ReformerFastConfig(**SIZES, num_layers=2), VOCABULARY, VOCABULARY))
    state = model.start(torch.tensor([[5, 9, 2]]))
    maps = AttentionMaps()
    _, state = model.step(torch.tensor([1]), state)
    model.step(torch.tensor([6]), state, maps)
    assert [weights.shape for weights in maps.target] == [(1, HEADS, 3, 1, 2)] * 2
    assert [weights.shape for weights in maps.source] == [(1, HEADS, 1, 3, 3)] * 2
