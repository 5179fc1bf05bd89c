"""Per-sample gradients and second derivatives, with the plain forms of all operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.testing import assert_close

from jointnmt.models import TranslationModel
from jointnmt.ops import backend
from jointnmt.text.special import pad_id
from support.families import sources, target_inputs, tiny_model

VARIANTS = ["transformer-fusion", "reformer-base-mean", "reformer-fast-shortcuts"]
SOURCE, TARGET = sources([4, 7, 2]), target_inputs([3, 6, 5])


def loss_of(model: TranslationModel, weights: dict[str, Tensor], source: Tensor, target: Tensor) -> Tensor:
    """Negative log-likelihood of one sentence pair."""
    logits = functional_call(model, weights, (source[None], target[None]))[0]
    gold, log_probabilities = target[1:], logits[:-1].log_softmax(-1)
    return -log_probabilities.gather(-1, gold[:, None]).squeeze(-1).masked_fill(gold == pad_id, 0).sum()


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_each_sentence_are_those_of_the_sentence_alone(variant: str) -> None:
    model = tiny_model(variant)
    weights = dict(model.named_parameters())
    gradient = grad(lambda *given: loss_of(model, *given))
    with backend("plain"):
        together = vmap(gradient, in_dims=(None, 0, 0))(weights, SOURCE, TARGET)
        for number, pair in enumerate(zip(SOURCE, TARGET, strict=True)):
            assert_close({name: each[number] for name, each in together.items()}, gradient(weights, *pair))
        model = tiny_model(variant, dropout=0.2, attention_dropout=0.2).train()
        vmap(gradient, in_dims=(None, 0, 0), randomness="different")(weights, SOURCE, TARGET)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_second_derivative_is_the_slope_of_the_first(variant: str) -> None:
    model = tiny_model(variant)
    weights = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(1)
    direction = {name: torch.randn(each.shape, generator=generator).double() for name, each in weights.items()}

    def first(step: float, create_graph: bool = False) -> Tensor:
        """The derivative in this direction, at weights a step further in it."""
        moved = {name: each + step * direction[name] for name, each in weights.items()}
        gradients = torch.autograd.grad(
            loss_of(model, moved, SOURCE[1], TARGET[1]), [*moved.values()], create_graph=create_graph
        )
        return sum((each * direction[name]).sum() for name, each in zip(moved, gradients, strict=True))  # type: ignore[return-value]

    with backend("plain"):
        second = torch.autograd.grad(first(0, create_graph=True), [*weights.values()])
        slope = (first(1e-5) - first(-1e-5)) / 2e-5
    assert_close(
        sum((each * direction[name]).sum() for name, each in zip(weights, second, strict=True)),
        slope,
        rtol=1e-5,
        atol=1e-5,
    )


def test_kernels_refuse_a_second_derivative() -> None:
    with backend("native"):
        model = tiny_model("reformer-base", embed_dim=16, ffn_dim=32).float()
        loss = loss_of(model, dict(model.named_parameters()), SOURCE[0], TARGET[0])
        gradients = torch.autograd.grad(loss, [*model.parameters()], create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            sum(each.square().sum() for each in gradients).backward()  # type: ignore[union-attr]
