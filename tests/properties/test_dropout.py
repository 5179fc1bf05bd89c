"""Dropout falls where it should: at every place of every family, and along every axis, checked by the outputs.

One sub-layer of one layer has an output; those of all others are zero by their last weights and biases. This output is
the same number everywhere, so that the layer's contribution shows what was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from jointnmt.models import ModelConfig, TranslationModel, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops import backend
from support.families import VOCABULARY, sources, target_inputs

WIDTH, HEADS = 32, 4
SOURCE_LENGTHS, TARGET_LENGTHS = (5, 6, 4), (7, 4, 6)
SOURCE_AXIS, TARGET_AXIS = 1, 2
RATE = 0.4
LOUD = 1000.0
"""Output of the sub-layer if a layer norm follows: much larger than the states."""

SIZES = {"embed_dim": WIDTH, "num_heads": HEADS, "ffn_dim": WIDTH, "dropout": 0.0}
STACKS = {**SIZES, "encoder_layers": 2, "decoder_layers": 2}
CONFIGS: dict[str, ModelConfig] = {
    "transformer": TransformerConfig(**STACKS),
    "post-norm": TransformerConfig(**STACKS, norm="post"),
    "plain shortcuts": TransformerConfig(**STACKS, shortcuts=ShortcutConfig(places=("encoder", "decoder", "cross"))),
    "emelin": TransformerConfig(**STACKS, emelin_compatible=True),
    "reformer-base": ReformerBaseConfig(**SIZES, num_layers=2),
    "reformer-base, ordinary": ReformerBaseConfig(**SIZES, num_layers=2, shared_dropout=False),
    "reformer-fast": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=2),
    "reformer-fast, shortcuts": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=2, shortcuts=ShortcutConfig()),
}


@dataclass(frozen=True)
class Site:
    """A place of dropout: of a sub-layer's output, of its hidden layer, or of its attention weights."""

    config: str
    rate: str
    """Key of the dropout rate."""
    layer: str
    sublayer: str
    shared: tuple[int, ...] = ()
    """Axes along which the mask is shared: of `[B, L, E]` for a sequence, `[B, S, T, E]` for a grid."""

    def __str__(self) -> str:
        return f"{self.config}: {self.rate} of {self.layer}.{self.sublayer}"


def sites() -> Iterator[Site]:
    """Sites in the last layer of every stack; for variants only the rates that they compute differently."""
    others = {"plain shortcuts": "attention_dropout", "reformer-fast, shortcuts": "attention_dropout"}
    others["emelin"] = "hidden_dropout"
    for name, config in CONFIGS.items():
        for site in sites_of(name, config):
            if site.rate == others.get(name, site.rate):
                yield site


def sites_of(name: str, config: ModelConfig) -> Iterator[Site]:
    transformer = isinstance(config, TransformerConfig)
    shares = getattr(config, "shared_dropout", False)
    source, target = ((SOURCE_AXIS,), (TARGET_AXIS,)) if shares else ((), ())
    before = (
        "encoder.layers.1" if transformer else "prenet.layers.1" if isinstance(config, ReformerFastConfig) else None
    )
    for layer in filter(None, (before, "layers.1")):
        on_grid = not transformer and layer != before
        for sublayer in sublayers(layer, on_grid):
            if sublayer.endswith("ffn"):
                shared, rates = source + target, ("dropout", "hidden_dropout")
            else:  # masks are shared along the axis that attention keeps
                shared, rates = target if sublayer.startswith("source") else source, ("dropout", "attention_dropout")
            for rate in rates:
                yield Site(name, rate, layer, sublayer, shared if on_grid else ())


def sublayers(layer: str, on_grid: bool) -> tuple[str, ...]:
    if on_grid:
        return "target_attention", "target_ffn", "source_attention", "source_ffn"
    return ("self_attention", "cross_attention", "ffn") if layer.startswith("layers") else ("attention", "ffn")


every_site = pytest.mark.parametrize("site", list(sites()), ids=str)
MODES = [("plain", True), ("native", True), ("native", False)]
"""Backends, with and without gradient."""


def speaking(site: Site) -> TranslationModel:
    """A model in which only the sub-layer of the site adds anything to the states."""
    torch.manual_seed(0)
    model = build_model(CONFIGS[site.config].model_copy(update={site.rate: RATE}), VOCABULARY, VOCABULARY)
    outputs = {
        path: module for path, module in model.named_modules() if path.endswith(("ffn.output", "attention.output"))
    }
    with torch.no_grad():
        for module in outputs.values():
            for parameter in module.parameters():
                parameter.zero_()
        path = f"{site.layer}.{site.sublayer}"
        output, sublayer = outputs[f"{path}.output"], model.get_submodule(path)
        if site.rate == "dropout":
            output.bias.fill_(LOUD)
            return model
        output.weight.copy_(LOUD * torch.eye(WIDTH))  # shows its input
        if site.sublayer.endswith("ffn"):
            _say_one_in_the_hidden_layer(sublayer, model, path)
        else:
            _say_one_in_the_values(sublayer)
    return model


def _say_one_in_the_hidden_layer(ffn: nn.Module, model: TranslationModel, path: str) -> None:
    hidden = ffn.get_submodule("hidden")
    hidden.weight.zero_()
    hidden.bias.fill_(1.0)
    if getattr(ffn, "input_dropout", None) is not None:  # the authors of the shortcuts drop the input: a norm of ones
        norm = model.get_submodule(f"{path}_residual.norm")
        norm.weight.zero_()
        norm.bias.fill_(1.0)
        hidden.weight.copy_(torch.eye(WIDTH))
        hidden.bias.zero_()


def _say_one_in_the_values(attention: nn.Module) -> None:
    """Set uniform attention and values of ones: the output is the share of the weights that are kept."""
    for name, parameter in attention.named_parameters():
        if not name.startswith("output"):
            parameter.fill_(1.0 if name.endswith(".bias") else -100.0 if name.endswith("gate_bias") else 0.0)


def added(model: TranslationModel, site: Site) -> Tensor:
    """The layer's contribution relative to that without dropout; with post-norm, whether there is one."""
    passed: dict[str, Tensor] = {}

    def keep(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        passed["x"], passed["y"] = arguments[0].detach(), output.detach()

    handle = model.get_submodule(site.layer).register_forward_hook(keep)
    model(sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS))
    handle.remove()
    if site.config == "post-norm":
        return (passed["y"] > 0).float()
    return (passed["y"] - passed["x"]) / LOUD


def assert_pattern(dropped: Tensor, shared: tuple[int, ...]) -> None:
    """Check that masks are equal along the shared axes, and along no others."""
    for axis in range(dropped.dim()):
        same = bool((dropped == dropped.select(axis, 0).unsqueeze(axis)).all())
        assert same == (axis in shared), f"axis {axis} of {tuple(dropped.shape)}"


@every_site
def test_training_drops_here_and_along_these_axes(site: Site) -> None:
    model = speaking(site).train()
    for name, gradient in MODES:
        with backend(name), nullcontext() if gradient else torch.no_grad():
            found = added(model, site)
        if site.rate == "attention_dropout":
            check_weights(found, site)
        else:
            check_features(found, site)


def check_features(found: Tensor, site: Site) -> None:
    """Check that every feature is dropped, or scaled by 1 / (1 - rate)."""
    kept = found > 0.5
    assert_pattern(kept, site.shared)
    assert 0.35 < kept.float().mean() < 0.85  # over as few as 96 masks
    if site.config != "post-norm":
        torch.testing.assert_close(found, kept / (1 - RATE), rtol=1e-3, atol=1e-3)


def check_weights(found: Tensor, site: Site) -> None:
    """Check that every head has its own share of the weights, and all of its features the same one."""
    by_head = found.unflatten(-1, (HEADS, -1))
    if site.config == "post-norm":  # after the norm, only the heads above the mean can be seen
        assert_pattern(by_head.mean(-1) > 0.5, site.shared)
        return
    torch.testing.assert_close(by_head, by_head[..., :1].expand_as(by_head), rtol=1e-3, atol=1e-3)
    assert_pattern(by_head[..., 0].round(decimals=2), site.shared)
    weights = by_head[..., 0] * (1 - RATE)  # some of L equal ones are left
    sources_read = site.sublayer in ("attention", "cross_attention", "source_attention")
    sentence, length = 0, (SOURCE_LENGTHS if sources_read else TARGET_LENGTHS)[0]
    rows = weights[sentence]
    if site.sublayer in ("self_attention", "target_attention"):
        rows = rows.select(-2, length - 1)  # the last one may attend to all
    counts = rows * length
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-2)
    assert ((counts > 0.5) & (counts < length - 0.5)).any()


@every_site
def test_nothing_is_dropped_outside_of_training(site: Site) -> None:
    model = speaking(site).eval()
    for name, gradient in MODES:
        with backend(name), nullcontext() if gradient else torch.no_grad():
            found, again = added(model, site), added(model, site)
        assert torch.equal(found, again)
        if site.config != "post-norm":  # whose norm removes what is the same everywhere
            torch.testing.assert_close(found, torch.ones_like(found), rtol=1e-3, atol=1e-3)


def outputs_of(model: TranslationModel, *modules: str, of_input: bool = False) -> list[Tensor]:
    """Outputs of these modules, or their first arguments."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            found[name] = (arguments[0] if of_input else output).detach()

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in modules]
    model(sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS))
    for handle in handles:
        handle.remove()
    return [found[name] for name in modules]


@pytest.mark.parametrize("key", ["dropout", "embedding_dropout"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_embeddings_of_both_sides_are_dropped_each_token_by_itself(name: str, key: str) -> None:
    other = {"dropout": 0.1} if key == "embedding_dropout" else {}
    config = CONFIGS[name].model_copy(update={**other, key: RATE})
    torch.manual_seed(0)
    model = build_model(config, VOCABULARY, VOCABULARY)
    with torch.no_grad():
        for table in (model.source_embedding, model.target_embedding):
            table.weight.fill_(1.0)  # times sqrt(E), so that no position cancels it
    tables = "source_embedding", "target_embedding"
    whole, dropped = outputs_of(model.eval(), *tables), outputs_of(model.train(), *tables)
    for before, after in zip(whole, dropped, strict=True):
        kept = after != 0
        torch.testing.assert_close(after[kept], (before / (1 - RATE))[kept])
        assert_pattern(kept, ())
        assert 0.5 < kept.float().mean() < 0.7


@pytest.mark.parametrize("name", CONFIGS)
def test_embeddings_may_be_without_dropout(name: str) -> None:
    torch.manual_seed(0)
    config = CONFIGS[name].model_copy(update={"dropout": RATE, "embedding_dropout": 0.0})
    model, tables = build_model(config, VOCABULARY, VOCABULARY), ("source_embedding", "target_embedding")
    torch.testing.assert_close(outputs_of(model.train(), *tables), outputs_of(model.eval(), *tables))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_first_layer_reads_the_dropped_embeddings(name: str) -> None:
    """The grid's input is the sum of both sides; the decoder of the shortcuts' authors drops its input twice."""
    torch.manual_seed(0)
    model = build_model(CONFIGS[name].model_copy(update={"dropout": RATE}), VOCABULARY, VOCABULARY).train()
    transformer, prenet = isinstance(model.config, TransformerConfig), isinstance(model.config, ReformerFastConfig)
    of_source = "encoder.layers.0" if transformer else "prenet.layers.0" if prenet else None
    torch.manual_seed(1)
    source, target, *outputs = outputs_of(
        model, "source_embedding", "target_embedding", *(["prenet.norm"] if prenet else [])
    )
    torch.manual_seed(1)
    read = outputs_of(model, *([of_source] if of_source else []), "layers.0", of_input=True)
    if of_source:
        assert torch.equal(read[0], source)
    if not transformer:
        side = outputs[0] if prenet else source
        torch.testing.assert_close(read[-1], side[:, :, None] + target[:, None])
    elif name == "emelin":
        kept = read[-1] != 0
        torch.testing.assert_close(read[-1][kept], (target / (1 - RATE))[kept])
        assert 0.5 < kept[target != 0].float().mean() < 0.7
    else:
        assert torch.equal(read[-1], target)
