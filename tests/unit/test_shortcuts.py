"""Lexical shortcuts against the paper: counts, equations, invariants; and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from jointnmt.data.batch import Batch
from jointnmt.errors import ConfigurationError
from jointnmt.models import AttentionMaps, build_model
from jointnmt.models.common import FamilyConfig, ShortcutConfig
from jointnmt.models.gates import gate_means
from jointnmt.models.layers.attention import SelfAttention
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.shortcut import Shortcut
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops import AttentionMask, gated_kv
from support.equations import SIZES, Shortcuts, away_from_initial_values, reformer, transformer
from support.equations import attention as attention_over

VOCABULARY, E = 17, 8
BASE = {"embed_dim": 512, "ffn_dim": 2048, "num_heads": 8}
BIG = {"embed_dim": 1024, "ffn_dim": 4096, "num_heads": 16}
SMALL = {"embed_dim": 256, "ffn_dim": 1024, "num_heads": 8}
PLAIN = {"shortcuts": {}}
FUSION = {"shortcuts": {"kind": "fusion"}}


def fusion_at(*places: str, **more: Any) -> dict[str, Any]:
    return {"shortcuts": {"kind": "fusion", "places": places, **more}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [  # fact sheet of the paper, sections 3: Table 5, and variants with the same vocabulary
        (BASE, 65_166_336),
        (BASE | PLAIN, 71_470_080),
        (BASE | FUSION, 84_052_992),
        (BIG, 218_413_056),
        (BIG | FUSION, 293_935_104),
        (BASE | fusion_at("encoder"), 74_609_664),
        (BASE | fusion_at("decoder"), 74_609_664),
        (BASE | fusion_at("cross"), 74_609_664),
        (BASE | fusion_at("encoder", "decoder", "cross"), 93_496_320),
        (BASE | fusion_at("encoder", "decoder", input="two-below"), 84_052_992),
        (SMALL, 21_573_120),
        (SMALL | PLAIN, 23_152_128),
        (SMALL | FUSION, 26_297_856),
    ],
)
@pytest.mark.parametrize("emelin_compatible", [False, True])
def test_parameter_counts_are_the_papers(settings: dict[str, Any], expected: int, emelin_compatible: bool) -> None:
    config = TransformerConfig(**settings, embeddings="all", attention_bias=False, emelin_compatible=emelin_compatible)
    with torch.device("meta"):
        model = build_model(config, 41_138, 41_138)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


SOURCE, TARGET = torch.tensor([[5, 9, 4, 16, 2]]), torch.tensor([[1, 7, 7, 12]])


@pytest.mark.parametrize("gradients", [True, False], ids=["with gradient", "without"])
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    ("pre", "shortcuts"),
    [
        pytest.param(True, Shortcuts(("encoder", "decoder")), id="plain"),
        pytest.param(False, Shortcuts(("encoder", "decoder")), id="plain post-norm"),
        pytest.param(True, Shortcuts(("encoder",), fusion=True), id="encoder"),
        pytest.param(True, Shortcuts(("decoder",), fusion=True), id="decoder"),
        pytest.param(True, Shortcuts(("cross",), fusion=True), id="cross"),
        pytest.param(False, Shortcuts(("cross",)), id="plain cross post-norm"),
        pytest.param(True, Shortcuts(("encoder", "decoder", "cross"), fusion=True), id="full"),
        pytest.param(True, Shortcuts(("encoder", "decoder"), fusion=True, two_below=True), id="two below"),
        pytest.param(True, Shortcuts(("encoder", "decoder"), emelin_compatible=True), id="emelin plain"),
        pytest.param(True, Shortcuts(("encoder", "decoder", "cross"), True, emelin_compatible=True), id="emelin full"),
        pytest.param(True, Shortcuts(("encoder", "decoder"), True, True, True), id="emelin two below"),
        pytest.param(True, Shortcuts((), emelin_compatible=True), id="emelin baseline"),
    ],
)
def test_transformers_compute_the_equations(
    pre: bool, shortcuts: Shortcuts, layers: int, bias: bool, gradients: bool
) -> None:
    layers += shortcuts.two_below  # a single layer has no layer two below
    torch.manual_seed(3)
    settings: dict[str, Any] = {"norm": "pre" if pre else "post", "emelin_compatible": shortcuts.emelin_compatible}
    if shortcuts.places:
        settings["shortcuts"] = ShortcutConfig(
            kind="fusion" if shortcuts.fusion else "plain",
            places=shortcuts.places,
            input="two-below" if shortcuts.two_below else "embedding",
        )
    config = TransformerConfig(**SIZES, **settings, encoder_layers=layers, decoder_layers=layers, attention_bias=bias)
    model, w = away_from_initial_values(build_model(config, VOCABULARY, VOCABULARY))
    expected = transformer(SOURCE[0].numpy(), TARGET[0].numpy(), w, layers, pre, shortcuts)
    with torch.set_grad_enabled(gradients):
        logits = model(SOURCE, TARGET)
    np.testing.assert_allclose(logits[0].detach().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gradients", [True, False], ids=["with gradient", "without"])
@pytest.mark.parametrize("fusion", [True, False], ids=["fusion", "plain"])
@pytest.mark.parametrize("places", [("source",), ("target",), ("source", "target"), ("prenet",), ("prenet", "target")])
def test_reformers_compute_the_equations(places: tuple[str, ...], fusion: bool, gradients: bool) -> None:
    torch.manual_seed(3)
    prenet = 2 if "prenet" in places else 0
    config = ShortcutConfig(kind="fusion" if fusion else "plain", places=places)
    if prenet:
        settings = ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=prenet, shortcuts=config)
    else:
        settings = ReformerBaseConfig(**SIZES, num_layers=2, shortcuts=config)
    model, w = away_from_initial_values(build_model(settings, VOCABULARY, VOCABULARY))
    shortcuts = Shortcuts(places, fusion)
    expected = reformer(SOURCE[0].numpy(), TARGET[0].numpy(), w, 2, prenet, "attention", shortcuts)
    with torch.set_grad_enabled(gradients):
        logits = model(SOURCE, TARGET)
    np.testing.assert_allclose(logits[0].detach().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fusion", [False, True])
def test_the_mixture_has_the_gradient_of_its_value(fusion: bool) -> None:
    torch.manual_seed(0)
    size = 4 if fusion else 2

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    projected, bias = random(2, 3, 2, 3 * size), random(2, 3)
    source_part, target_part = random(2, 3, 1, 3 * size), random(2, 1, 2, 3 * size)

    def mixed(projected: torch.Tensor, bias: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
        return gated_kv(projected, parts, bias, fusion)

    assert torch.autograd.gradcheck(mixed, (projected, bias, source_part, target_part))


def attention(kind: str | None) -> SelfAttention:
    torch.manual_seed(1)
    layer = SelfAttention(E, 2, SharedDropout(0.0), shortcut=None if kind is None else Shortcut(E, kind))
    with torch.no_grad():
        layer.qkv.bias.normal_()
    return layer.double()


def attended(layer: SelfAttention, x: torch.Tensor, embedded: torch.Tensor | None = None) -> torch.Tensor:
    everything = AttentionMask(lambda: torch.zeros(()))
    return layer(x, everything, lexical=() if embedded is None else [layer.shortcut.project(embedded)]).total


@torch.no_grad()
def test_extreme_gates_leave_only_one_half() -> None:
    layer, plain = attention("plain"), attention(None)
    x, embedded = torch.randn(2, 3, 5, E, dtype=torch.float64).unbind()
    plain.load_state_dict({name: tensor for name, tensor in layer.state_dict().items() if "shortcut" not in name})
    layer.shortcut.gate_bias.fill_(-1e9)
    assert_close(attended(layer, x, embedded), attended(plain, x))
    layer.shortcut.gate_bias.fill_(1e9)
    keys, values = layer.shortcut.project(embedded).chunk(2, dim=-1)
    queries = layer.qkv(x)[..., :E]
    expected = [attention_over(*map(np.asarray, each), False)[0] for each in zip(queries, keys, values, strict=True)]
    assert_close(attended(layer, x, embedded), layer.output(torch.from_numpy(np.stack(expected))))


@torch.no_grad()
def test_block_diagonal_fusion_is_the_plain_shortcut() -> None:
    plain, fusion = attention("plain"), attention("fusion")
    x, embedded = torch.randn(2, 3, 5, E, dtype=torch.float64).unbind()
    zeros = torch.zeros(2 * E, E, dtype=torch.float64)
    of_query, of_hidden = plain.qkv.weight.split([E, 2 * E])
    fusion.qkv.weight.copy_(torch.cat([of_query, zeros, of_hidden]))
    fusion.qkv.bias.copy_(torch.cat([plain.qkv.bias[:E], zeros[:, 0], plain.qkv.bias[E:]]))
    fusion.shortcut.lexical.weight.copy_(torch.cat([plain.shortcut.lexical.weight, zeros]))
    fusion.shortcut.gate_bias.copy_(plain.shortcut.gate_bias)
    fusion.output.load_state_dict(plain.output.state_dict())
    assert_close(attended(fusion, x, embedded), attended(plain, x, embedded))


@torch.no_grad()
def test_the_gate_belongs_to_the_first_half() -> None:
    """Swapped halves change the result, unless the gate is complemented: 1 - sigmoid(a) is sigmoid(-a)."""
    layer, swapped = attention("fusion"), attention("fusion")
    x, embedded = torch.randn(2, 3, 5, E, dtype=torch.float64).unbind()
    swap = torch.arange(4 * E).roll(2 * E)
    swapped.qkv.weight[E:] = layer.qkv.weight[E:][swap]
    swapped.qkv.bias[E:] = layer.qkv.bias[E:][swap]
    swapped.shortcut.lexical.weight.copy_(layer.shortcut.lexical.weight[swap])
    expected = attended(layer, x, embedded)
    assert not torch.allclose(attended(swapped, x, embedded), expected)
    halves = []
    for each in (layer, swapped):
        lexical, hidden = (each.qkv(x)[..., E:] + each.shortcut.project(embedded)).chunk(2, dim=-1)
        halves.append((lexical, hidden, torch.sigmoid(lexical + hidden + each.shortcut.gate_bias.flatten())))
    (a, b, gate), (c, d, _) = halves
    assert_close(gate * a + (1 - gate) * b, (1 - gate) * c + gate * d)


@torch.no_grad()
def test_two_equal_halves_are_plain_attention() -> None:
    layer, plain = attention("plain"), attention(None)
    x = torch.randn(3, 5, E, dtype=torch.float64)
    layer.qkv.bias.zero_()
    layer.shortcut.lexical.weight.copy_(layer.qkv.weight[E:])
    layer.shortcut.gate_bias.zero_()
    plain.load_state_dict({name: tensor for name, tensor in layer.state_dict().items() if "shortcut" not in name})
    assert_close(attended(layer, x, x), attended(plain, x))


@pytest.mark.parametrize(("layers", "same"), [(2, True), (3, False)])
def test_two_below_is_the_embedding_in_two_layers(layers: int, same: bool) -> None:
    results = []
    for where in ("embedding", "two-below"):
        torch.manual_seed(2)
        shortcuts = ShortcutConfig(kind="fusion", input=where)
        config = TransformerConfig(**SIZES, encoder_layers=layers, decoder_layers=layers, shortcuts=shortcuts)
        results.append(build_model(config, VOCABULARY, VOCABULARY).eval()(SOURCE, TARGET))
    assert torch.equal(results[0], results[1]) == same


def test_initial_values_are_the_authors() -> None:
    torch.manual_seed(0)
    bound = math.sqrt(6 / (4 * 64))  # of one [3E, E] block of queries, keys and values, or a [2E, 2E] block of fusion
    for kind in ("plain", "fusion"):
        layer = SelfAttention(64, 4, SharedDropout(0.0), shortcut=Shortcut(64, kind))
        assert 0.98 * bound < layer.shortcut.lexical.weight.abs().max() <= bound
        assert 0.9 * math.sqrt(3 / 64) < layer.shortcut.gate_bias.abs().max() <= math.sqrt(3 / 64)
        assert 0.98 * bound < layer.qkv.weight[64:].abs().max() <= bound


def test_emelin_compatible_training_drops_where_the_authors_do() -> None:
    config = TransformerConfig(**{**SIZES, "hidden_dropout": 0.4, "embedding_dropout": 0.3}, emelin_compatible=True)
    model = build_model(config, VOCABULARY, VOCABULARY)
    assert (model.second_dropout.rate, model.target_embedding.dropout.rate) == (0.3, 0.3)
    ffn, seen = model.layers[0].ffn.train(), []
    ffn.hidden.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    ffn.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    ffn(torch.ones(1, 50, E))
    into_hidden, into_output = seen
    assert into_hidden.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert_close(into_output, torch.relu(torch.nn.functional.linear(into_hidden, ffn.hidden.weight, ffn.hidden.bias)))
    clean = build_model(config.model_copy(update={"emelin_compatible": False}), VOCABULARY, VOCABULARY)
    assert clean.second_dropout.rate == 0 and clean.layers[0].ffn.input_dropout is None


@torch.no_grad()
def test_gates_can_be_read_out() -> None:
    torch.manual_seed(0)
    full = ShortcutConfig(places=("encoder", "decoder", "cross"))
    config = TransformerConfig(**SIZES, encoder_layers=3, decoder_layers=2, shortcuts=full)
    attn_weights = AttentionMaps()
    model = build_model(config, VOCABULARY, VOCABULARY).eval()
    model(SOURCE, TARGET, attn_weights)
    shapes = {place: [tuple(gates.shape) for gates in layers] for place, layers in attn_weights.gates.items()}
    assert shapes == {"encoder": [(1, 5, 2, E)] * 3, "decoder": [(1, 4, 2, E)] * 2, "cross": [(1, 5, 2, E)] * 2}
    first, attention = model.source_embedding(SOURCE), model.encoder.layers[0].attention
    hidden = attention.qkv(model.encoder.layers[0].attention_residual.norm(first))[..., E:]
    expected = torch.sigmoid(hidden + attention.shortcut.project(first) + attention.shortcut.gate_bias.flatten())
    assert_close(attn_weights.gates["encoder"][0].flatten(-2), expected)
    fast = ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=1, shortcuts=ShortcutConfig())
    attn_weights = AttentionMaps()
    build_model(fast, VOCABULARY, VOCABULARY).eval()(SOURCE, TARGET, attn_weights)
    shapes = {place: [tuple(gates.shape) for gates in layers] for place, layers in attn_weights.gates.items()}
    grid = [(1, 5, 4, 2, E)] * 2
    assert shapes == {"prenet": [(1, 5, 2, E)], "target": grid, "source": grid}


@torch.no_grad()
@pytest.mark.parametrize("family", [TransformerConfig, ReformerFastConfig], ids=lambda family: family.__name__)
def test_mean_gates_of_a_sentence_do_not_depend_on_its_batch(family: type[FamilyConfig]) -> None:
    """Padding also has gates, which do not count: neither those of a side nor those of cells."""
    torch.manual_seed(0)
    config = family(**SIZES, shortcuts=ShortcutConfig())  # type: ignore[arg-type]
    model = build_model(config, VOCABULARY, VOCABULARY).eval()
    pairs = [([5, 9, 4, 16], [7]), ([6], [8, 12, 9]), ([4, 5], [6, 7])]

    def means(*chosen: tuple[list[int], list[int]]) -> list[torch.Tensor]:
        batch, maps = Batch.collate(*zip(*chosen, strict=True)), AttentionMaps()
        model(batch.source, batch.target_input, maps)
        found = gate_means(maps, batch.source_mask, batch.target_mask)
        return [torch.stack(layers, 1) for layers in found.values()]

    together, alone = means(*pairs), [means(pair) for pair in pairs]
    for number, of_place in enumerate(together):
        assert_close(of_place, torch.cat([each[number] for each in alone]))


@pytest.mark.parametrize(
    ("family", "settings", "reason"),
    [
        (TransformerConfig, {"shortcuts": {"input": "two-below"}, "encoder_layers": 1}, "no layer two below"),
        (TransformerConfig, fusion_at("cross", input="two-below"), "source embeddings"),
        (TransformerConfig, fusion_at("prenet"), "'prenet', which this family does not have.*encoder, decoder, cross"),
        (TransformerConfig, fusion_at("encoder", "encoder"), "has duplicates"),
        (TransformerConfig, fusion_at(), "should not be empty"),
        (TransformerConfig, {"emelin_compatible": True, "norm": "post"}, "norm 'pre'"),
        (ReformerBaseConfig, fusion_at("cross"), "'cross', which this family does not have.*source, target"),
        (ReformerBaseConfig, fusion_at("prenet"), "'prenet', which this family does not have"),
        (ReformerFastConfig, {"shortcuts": {"input": "two-below"}}, "not a sum of a source and a target side|PreNet"),
        (ReformerFastConfig, fusion_at("target", input="two-below"), "not a sum of a source and a target side"),
        (ReformerFastConfig, {**fusion_at("prenet", input="two-below"), "prenet_layers": 1}, "no layer two below"),
        (ReformerFastConfig, {"emelin_compatible": True}, "emelin_compatible"),
    ],
)
def test_wrong_combinations_are_refused_with_the_reason(
    family: type[FamilyConfig], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        family.parse(settings, "recipe.yaml")


def test_two_below_in_the_prenet_alone_is_allowed() -> None:
    config = ReformerFastConfig(
        **SIZES, prenet_layers=3, shortcuts=ShortcutConfig(places=("prenet",), input="two-below")
    )
    assert config.shortcut_places == ("prenet",)
