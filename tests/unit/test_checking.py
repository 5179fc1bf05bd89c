"""`check_model`: every family passes, and each broken promise is named."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from jointnmt.errors import ModelError
from jointnmt.models import LayerStack, Reformer, TranslationModel, build_model, check_model
from jointnmt.text.special import pad_id
from support.families import VARIANTS, VOCABULARY, tiny_model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_family_passes(variant: str, dtype: torch.dtype) -> None:
    model = tiny_model(variant).to(dtype)
    model.layers[0].train() if hasattr(model, "layers") else model.train()
    before = [module.training for module in model.modules()]
    check_model(model, VOCABULARY, VOCABULARY)
    assert [module.training for module in model.modules()] == before
    assert not any(module._forward_hooks for module in model.modules())


def forward_like(model: TranslationModel, change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Change the logits of `forward`, given source and target input."""
    old = model.forward

    def forward(_: Any, source: Tensor, target: Tensor, attn_weights: Any = None) -> Tensor:
        return change(old(source, target, attn_weights), source, target)

    cast(Any, model).forward = types.MethodType(forward, model)


def reads_the_future(logits: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return logits + (target == target[:, -1:]).sum(1)[:, None, None]


def reads_the_neighbour(logits: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return logits + logits.nan_to_num().mean(0, keepdim=True)


def reads_padding(logits: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return logits * (1 + (source == pad_id).sum(1)[:, None, None])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (reads_the_future, "depends on later tokens of the target"),
        (reads_the_neighbour, "or on the other sentence"),
        (reads_padding, "depends on the padding of the source"),
        (lambda logits, source, target: logits + 1, "`step` computes other logits than `forward` at position 0"),
        (lambda logits, source, target: logits[:, 1:], r"logits \[2, 5, 23\] instead of \[2, 6, 23\]"),
        (lambda logits, source, target: logits / 0, "logits that are not finite"),
        (lambda logits, source, target: functional.dropout(logits), "other logits at each call in evaluation mode"),
    ],
)
def test_a_forward_that_breaks_the_interface_is_refused(
    change: Callable[[Tensor, Tensor, Tensor], Tensor], message: str
) -> None:
    model = tiny_model("reformer-base")
    forward_like(model, change)
    with pytest.raises(ModelError, match=message):
        check_model(model, VOCABULARY, VOCABULARY)


def test_a_selection_of_rows_that_is_ignored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("transformer-pre")
    start = model.start

    def started(source: Tensor) -> Any:
        state = start(source)
        select = state.select
        state.select = lambda rows: select(rows.sort().values)
        return state

    monkeypatch.setattr(model, "start", started)
    with pytest.raises(ModelError, match="at position 2 after `select`"):
        check_model(model, VOCABULARY, VOCABULARY)


def test_a_vocabulary_of_marks_alone_is_enough() -> None:
    config = VARIANTS["reformer-base"]
    check_model(build_model(config, 4, 4).double(), 4, 4)


def test_alignments_and_stacks_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = cast(Reformer, tiny_model("reformer-base"))
    monkeypatch.setattr(model, "stacks", lambda: {"grid": LayerStack([*model.layers, model.layers[0]])})
    with pytest.raises(ModelError, match="lists a GridLayer 2 times, but it is called 1 times"):
        check_model(model, VOCABULARY, VOCABULARY)
    monkeypatch.undo()
    old = model.forward

    def forward(source: Tensor, target: Tensor, attn_weights: Any = None) -> Tensor:
        logits = old(source, target, attn_weights)
        if attn_weights is not None:
            attn_weights.alignment = attn_weights.alignment / 2
        return logits

    monkeypatch.setattr(model, "forward", forward)
    with pytest.raises(ModelError, match="does not sum to 1"):
        check_model(model, VOCABULARY, VOCABULARY)
