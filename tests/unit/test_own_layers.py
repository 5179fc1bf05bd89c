"""Custom layers: subclasses, hooks and adapters take effect, whatever is fused elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import prune
from torch.testing import assert_close

from jointnmt.models import TranslationModel, build_model
from jointnmt.models.layers.embedding import TokenEmbedding, VocabularyProjection
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.linear import Linear
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.quantize import Precision, kernels_multiply, prepare_for_inference
from jointnmt.ops import Biased, Normed, backend
from jointnmt.search import Hypothesis, SearchConfig, beam_search
from jointnmt.text.special import eos_id
from support.kernels import MODELS, VOCABULARY

FAMILIES = ["transformer", "reformer-fast"]
SOURCE = torch.tensor([[4, 5, 6, 7, eos_id], [9, 12, 30, 5, eos_id]])
TARGET = torch.tensor([[1, 5, 6, 7, 9], [1, 12, 30, 5, 8]])


class Twice(Linear):
    """A linear layer that computes something else than its weights imply."""

    def forward(self, x: Tensor | Normed) -> Tensor:
        return 2 * super().forward(x)


class RootMeanSquare(LayerNorm):
    """A layer norm that does not centre."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class Adapter(nn.Module):
    """A layer around a layer, like low-rank adapters."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.layer(x)  # type: ignore[no-any-return]


def model_of(family: str) -> TranslationModel:
    torch.manual_seed(7)
    return build_model(MODELS[family], VOCABULARY, VOCABULARY).eval()


def logits_of(model: TranslationModel) -> Tensor:
    found: Tensor = model(SOURCE, TARGET)
    return found.detach()


def changed(model: TranslationModel, kind: type[nn.Module], change: Callable[[nn.Module], nn.Module]) -> int:
    """Replace every layer of exactly this kind; returns their number."""
    places = [
        (parent, name) for parent in model.modules() for name, child in parent.named_children() if type(child) is kind
    ]
    for parent, name in places:
        setattr(parent, name, change(getattr(parent, name)))
    return len(places)


def as_class(kind: type[nn.Module]) -> Callable[[nn.Module], nn.Module]:
    def change(layer: nn.Module) -> nn.Module:
        layer.__class__ = kind  # type: ignore[assignment]
        return layer

    return change


@pytest.mark.parametrize("family", FAMILIES)
def test_linear_layers_of_any_kind_are_called(family: str) -> None:
    """A subclass, an adapter and a hook that double every result equal layers with doubled weights."""

    def hooked(layer: nn.Module) -> nn.Module:
        layer.register_forward_hook(lambda _, __, result: 2 * result)
        return layer

    doubled = model_of(family)
    for module in doubled.modules():
        for parameter in module.parameters(recurse=False) if type(module) is Linear else ():
            parameter.data *= 2
    expected = logits_of(doubled)
    for change in (as_class(Twice), Adapter, hooked):
        model = model_of(family)
        assert changed(model, Linear, change) > 10
        for name in ("native", "plain"):
            with backend(name):  # type: ignore[arg-type]
                assert_close(logits_of(model), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_of_any_kind_are_called(family: str) -> None:
    """Also one that is not a layer norm at all."""
    own, pytorch = model_of(family), model_of(family)
    number = changed(own, LayerNorm, as_class(RootMeanSquare))
    assert changed(pytorch, LayerNorm, lambda norm: nn.RMSNorm(norm.normalized_shape, norm.eps)) == number > 3
    expected = logits_of(own)
    assert (expected - logits_of(model_of(family))).abs().max() > 0.01
    for name in ("native", "plain"):
        with backend(name):  # type: ignore[arg-type]
            assert_close(logits_of(own), expected, rtol=1e-4, atol=1e-4)
            assert_close(logits_of(pytorch), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pruned_model_learns(family: str) -> None:
    model = model_of(family)
    for module in [*model.modules()]:
        if type(module) is Linear:
            prune.l1_unstructured(module, "weight", amount=0.5)
    for _ in range(2):  # pruning multiplies by its mask again, in a hook
        model(SOURCE, TARGET).logsumexp(-1).sum().backward()


@pytest.mark.parametrize("family", FAMILIES)
def test_hooks_are_called_in_search(family: str) -> None:
    """In search, positions would otherwise be replayed."""
    model = prepare_for_inference(model_of(family), "float32")
    for _ in range(3):
        before = translations(model)
    handle = next(model.get_submodule("layers").children()).register_forward_hook(
        lambda _, __, result: (0 * result[0], *result[1:]) if isinstance(result, tuple) else 0 * result
    )
    hooked = translations(model)
    handle.remove()
    assert hooked != before == translations(model)


def own_forward(model: TranslationModel) -> AbstractContextManager[Any]:
    *_, ffn = (each for each in model.modules() if isinstance(each, FeedForward))
    computed = ffn.forward
    return patch.object(ffn, "forward", lambda x: without_value(computed(x)))


def another_class_forward(_: TranslationModel) -> AbstractContextManager[Any]:
    computed = FeedForward.forward
    return patch.object(FeedForward, "forward", lambda self, x: without_value(computed(self, x)))


def hook_of_all_modules(_: TranslationModel) -> AbstractContextManager[Any]:
    return register_module_forward_hook(
        lambda module, _, result: without_value(result) if isinstance(module, FeedForward) else None
    )


def without_value(update: Biased) -> Biased:
    """The bias alone, by an operation of PyTorch's in place: kernels and addresses stay the same."""
    update.value.zero_()
    return update


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("change", [own_forward, another_class_forward, hook_of_all_modules])
def test_a_model_that_has_searched_before_notices_a_change_of_its_layers(
    family: str, change: Callable[[TranslationModel], AbstractContextManager[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepare_for_inference(model_of(family), "float32")
    for _ in range(3):
        before = translations(model)
    with change(model):
        found = [translations(model) for _ in range(3)]
        with monkeypatch.context() as without_replay:
            without_replay.setenv("JOINTNMT_GRAPHS", "0")
            expected = translations(model)
    assert found == 3 * [expected] and expected != before == translations(model)


def learned(
    self: TokenEmbedding, ids: Tensor, start: int = 0, forward: Callable[..., Tensor] = TokenEmbedding.forward
) -> Tensor:
    """A `forward` of embeddings with other positions."""
    return forward(self, ids, start) + 3 * torch.sin(torch.arange(self.weight.shape[1]) + start)


def subclass(embedding: TokenEmbedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "__class__", type("Learned", (TokenEmbedding,), {"forward": learned}))


def own_embedding(embedding: TokenEmbedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "forward", partial(learned, embedding))


def every_embedding(_: TokenEmbedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenEmbedding, "forward", learned)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("change", [subclass, own_embedding, every_embedding])
def test_an_embedding_of_another_kind_is_called_in_search(
    family: str, change: Callable[[TokenEmbedding, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepare_for_inference(model_of(family), "float32")
    embedding = model.target_embedding
    assert isinstance(embedding, TokenEmbedding)
    before = translations(model)
    change(embedding, monkeypatch)
    for _ in range(3):
        found = translations(model)
    monkeypatch.setenv("JOINTNMT_GRAPHS", "0")
    assert before != found == translations(model)


def test_a_layer_of_ones_own_is_not_packed(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of("transformer")
    changed(model, Linear, as_class(Twice))
    prepared = prepare_for_inference(model, "bfloat16")
    assert any(type(module) is Twice for module in prepared.modules())
    assert "keep the model's precision" in caplog.text


def test_a_model_is_prepared_that_keeps_tensors_for_a_term_of_its_loss() -> None:
    """Such tensors are not copied, and the copy does not keep the graph that they belong to."""
    model = model_of("transformer")
    logits = model.train()(SOURCE, TARGET)
    ffn = next(each for each in model.modules() if isinstance(each, FeedForward))
    model.kept, ffn.kept = logits, {"hidden": [logits.exp(), (ffn.hidden.weight * 2,)]}
    prepared = prepare_for_inference(model.eval(), "float32")
    assert prepared is not model and torch.equal(prepared.kept, logits) and prepared.kept.is_leaf
    assert model.kept is logits and ffn.kept["hidden"][0].requires_grad
    assert translations(prepared) == translations(prepare_for_inference(model_of("transformer"), "float32"))


class Colder(VocabularyProjection):
    """A projection that computes something else than its weights imply."""

    def forward(self, hidden: Tensor | Normed) -> Tensor:
        return 2 * super().forward(hidden)


class Wrapped(VocabularyProjection):
    """The same, by a wrapper that takes over the attributes of what it wraps."""

    @functools.wraps(VocabularyProjection.forward)
    def forward(self, hidden: Tensor | Normed) -> Tensor:
        return 2 * VocabularyProjection.forward(self, hidden)


def hook(projection: nn.Module) -> None:
    projection.register_forward_hook(lambda _, __, logits: 2 * logits)


def replace_forward(projection: nn.Module) -> None:
    computed = projection.forward
    projection.forward = lambda hidden: 2 * computed(hidden)


@pytest.mark.parametrize("change", [as_class(Colder), as_class(Wrapped), hook, replace_forward])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_projection_of_ones_own_is_not_packed(
    change: Callable[[nn.Module], Any], precision: Precision, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of("transformer")
    expected = 2 * logits_of(model)
    change(model.output)  # type: ignore[arg-type]
    assert not kernels_multiply(model, precision)
    with torch.autocast("cpu", torch.bfloat16, precision == "bfloat16"):
        found = logits_of(prepare_for_inference(model, precision)).float()
    assert_close(found, expected, rtol=0.1, atol=0.1)
    assert caplog.text.endswith("prepared for bfloat16: output\n") is (precision == "bfloat16")


def translations(model: TranslationModel) -> list[tuple[int, ...]]:
    found: list[list[Hypothesis]] = beam_search(model, SOURCE, SearchConfig(beam_size=3, max_length_offset=20))
    return [hypotheses[0].ids for hypotheses in found]
