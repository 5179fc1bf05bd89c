"""What runs on a GPU only, as far as a CPU can tell: the library's fused attention instead of batched products."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from jointnmt.models import ModelConfig, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.layers import attention
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.native import operations
from jointnmt.search.beam import SearchConfig, beam_search

SIZES = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 48, "dropout": 0.0}
MODELS: dict[str, ModelConfig] = {
    "transformer": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2),
    "reformer-base": ReformerBaseConfig(**SIZES, num_layers=2),
    "reformer-fast": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=2, activation_checkpointing=True),
    "reformer-fast-shortcuts": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=2, shortcuts=ShortcutConfig()),
}
VOCABULARY = 30


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """The CPU takes the GPU's way; each entry is a call of the fused kernels: was it causal, without a mask?"""
    calls: list[bool] = []
    library = functional.scaled_dot_product_attention

    def fused(*inputs: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        assert all(each.ndim == 4 for each in inputs)
        calls.append(is_causal and attn_mask is None)
        return library(*inputs, attn_mask=attn_mask, is_causal=is_causal)

    with monkeypatch.context() as patch:
        patch.setattr(attention, "_has_fused_kernels", lambda _: True)
        patch.setattr(attention, "_prefers_batched_products", lambda *_: False)
        patch.setattr(operations, "usable", lambda *_: False)
        patch.setattr(functional, "scaled_dot_product_attention", fused)
        yield calls


def model_and_text(name: str) -> tuple[torch.nn.Module, Tensor, Tensor]:
    torch.manual_seed(2)
    model = build_model(MODELS[name], VOCABULARY, VOCABULARY)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    source, target = torch.randint(4, VOCABULARY, (2, 4, 9)).unbind()
    source[1, 3:] = source[2, 8:] = target[3, 5:] = 0
    return model, source, target


@pytest.mark.parametrize("name", MODELS)
def test_fused_attention_trains_alike(name: str, request: pytest.FixtureRequest) -> None:
    model, source, target = model_and_text(name)
    logits = model(source, target)
    weights = torch.randn_like(logits)
    expected = torch.autograd.grad((logits * weights).sum(), list(model.parameters()))
    calls = request.getfixturevalue("fused_calls")
    fused = model(source, target)
    gradients = torch.autograd.grad((fused * weights).sum(), list(model.parameters()))
    assert any(calls) and not all(calls), "target attention is causal, source attention is not"
    assert_close(fused, logits, rtol=1e-4, atol=1e-4)
    assert_close(gradients, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_fused_attention_translates_alike(name: str, request: pytest.FixtureRequest) -> None:
    model, source, _ = model_and_text(name)
    expected = beam_search(model.eval(), source, SearchConfig(beam_size=3))
    calls = request.getfixturevalue("fused_calls")
    found = beam_search(model, source, SearchConfig(beam_size=3))
    assert calls
    assert [each[0].ids for each in found] == [each[0].ids for each in expected]
