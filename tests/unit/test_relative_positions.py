"""Attention to relative positions, which decoding reads from its cache: the example's Reformer with ALiBi."""

from __future__ import annotations

import pytest
import torch
from examples.relative_grid import Alibi, AlibiConfig
from torch import Tensor, nn
from torch.testing import assert_close

from jointnmt.data.batch import Batch
from jointnmt.models import AttentionMaps, check_model
from jointnmt.models.layers.slots import RowSlots
from jointnmt.models.quantize import prepare_for_inference
from jointnmt.ops import backend
from jointnmt.ops.backend import Name
from jointnmt.search import SearchConfig, beam_search, rescore
from support.families import sources, target_inputs

VOCABULARY = 23


def alibi(**changes: object) -> Alibi:
    torch.manual_seed(4)
    config = AlibiConfig(embed_dim=16, num_heads=4, ffn_dim=32, num_layers=2, dropout=0.0, **changes)  # type: ignore[arg-type]
    model = Alibi(config, VOCABULARY, VOCABULARY).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("kernels", ["native", "plain"])
def test_it_keeps_the_interface(kernels: Name) -> None:
    with backend(kernels):
        check_model(alibi(), VOCABULARY, VOCABULARY)


def test_attention_is_that_of_the_equation() -> None:
    """softmax(q k^T / sqrt(D) - slope * distance) of the first layer, on both axes."""
    model, source, target = alibi().double(), sources([4, 7]), target_inputs([3, 6])
    maps, layer = AttentionMaps(), model.layers[0]
    inputs: dict[str, Tensor] = {}
    for place in ("target", "source"):
        attention = getattr(layer, f"{place}_attention")
        attention.register_forward_pre_hook(lambda _, given, place=place: inputs.update({place: given[0].value}))
    model(source, target, maps)
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)
    for place, weights in (("target", maps.target[0]), ("source", maps.source[0])):
        attention = getattr(layer, f"{place}_attention")
        x = inputs[place] if place == "target" else inputs[place].transpose(1, 2)  # [B, kept, length, E]
        query, key, _ = (
            each.unflatten(-1, (4, 4)).transpose(2, 3) for each in nn.Linear.forward(attention.qkv, x).chunk(3, -1)
        )
        places = torch.arange(x.shape[2])
        scores = query @ key.mT / 2 - slopes[:, None, None] * (places[:, None] - places).abs()
        hidden = places > places[:, None] if place == "target" else (source == 0)[:, None, None, None]
        expected = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        assert_close(weights.transpose(1, 2), expected)  # [B, H, kept, ...] -> [B, kept, H, ...]


@torch.no_grad()
@pytest.mark.parametrize("kernels", ["native", "plain"])
def test_scores_of_search_are_those_of_rescoring(kernels: Name) -> None:
    with backend(kernels):
        model = prepare_for_inference(alibi(), "float32")
        source = sources([4, 9, 2])
        found = beam_search(model, source, SearchConfig(beam_size=4, max_length_offset=20), num_best=4)
        assert max(len(each.ids) for hypotheses in found for each in hypotheses) > 20, "caches grow"
        for ids, hypotheses in zip(source.tolist(), found, strict=True):
            own = [token for token in ids if token][:-1]
            batch = Batch.collate([own] * len(hypotheses), [each.ids for each in hypotheses])
            for hypothesis, (tokens, _) in zip(hypotheses, rescore(model, batch), strict=True):
                assert hypothesis.token_log_probabilities == pytest.approx(tokens, abs=1e-4)


@torch.no_grad()
def test_distances_follow_rows_that_are_reordered() -> None:
    slots = RowSlots(2, expected=4, lines=1, device=torch.device("cpu"))
    slots.advance()
    slots.select(torch.tensor([0, 0, 1, 1]))
    slots.advance()
    assert slots.distances().tolist() == [[[1, 0, 0], [1, 0, 0]]] * 2
    slots.select(torch.tensor([1, 0, 3, 3]))
    slots.advance()
    assert slots.distances().tolist() == [[[2, 0, 1, 0, 0], [2, 1, 0, 0, 0]], [[2, 0, 1, 0, 0], [2, 0, 1, 0, 0]]]
    assert slots.distances().amax(-1).tolist() == [[slots.position] * 2] * 2


def test_it_learns_alike_where_layers_are_recomputed() -> None:
    source, target = sources([4, 7]), target_inputs([3, 6])
    gradients = []
    for recomputes in (False, True):
        model = alibi(activation_checkpointing=recomputes).train()
        model(source, target).logsumexp(-1).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert_close(*gradients)
