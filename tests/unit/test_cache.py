"""The decoding cache: a column more at each position, shared by a sentence's beam, moved as little as possible."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jointnmt.models import FAMILIES, TranslationModel
from jointnmt.models.layers.cache import CachedState
from jointnmt.text.special import eos_id

SOURCE = torch.tensor([[4, 5, eos_id], [6, 5, eos_id], [7, 4, eos_id], [8, 6, eos_id]])


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> TranslationModel:
    config_class, model_class = FAMILIES[request.param]
    layers = {name: 2 for name in config_class.model_fields if name.endswith("layers")}
    return model_class(config_class(embed_dim=16, num_heads=2, ffn_dim=16, **layers), 12, 12).eval()


def decoded(model: TranslationModel, positions: int, hypotheses: int) -> CachedState:
    state = model.start(SOURCE).select(torch.arange(len(SOURCE)).repeat_interleave(hypotheses))
    assert isinstance(state, CachedState)
    for position in range(positions):
        _, state = model.step(torch.arange(state.slots.num_rows) % 4 + 4 + position, state)
        assert isinstance(state, CachedState)
    return state


def used(state: CachedState) -> list[Tensor]:
    """The slots in use of each cache."""
    return [cache.stored[..., : state.slots.used, :] for cache in state.caches]


def addresses(state: CachedState) -> list[int]:
    return [cache.stored.data_ptr() for cache in state.caches]


@torch.no_grad()
def test_a_position_adds_one_slot_for_each_hypothesis(model: TranslationModel) -> None:
    state, before = decoded(model, 2, hypotheses=3), []
    for _ in range(3):
        kept = [cache.clone() for cache in used(state)]
        assert all(each.shape[0] == len(SOURCE) for each in kept), "one cache a sentence, not one a hypothesis"
        before = before or addresses(state)
        _, state = model.step(torch.full((state.slots.num_rows,), 5), state)
        for cache, old in zip(used(state), kept, strict=True):
            assert cache.shape[-2] == old.shape[-2] + 3
            assert torch.equal(cache[..., : old.shape[-2], :], old), "earlier positions are not computed again"
    assert addresses(state) == before, "there is room from the beginning"


@torch.no_grad()
def test_reordering_a_beam_moves_no_keys_and_values(model: TranslationModel) -> None:
    state = decoded(model, 3, hypotheses=3)
    before, kept = addresses(state), [cache.clone() for cache in used(state)]
    state = state.select(torch.tensor([2, 2, 0, 3, 5, 4, 7, 7, 7, 9, 10, 11]))
    assert addresses(state) == before
    assert all(map(torch.equal, used(state), kept))


@torch.no_grad()
def test_only_what_fills_a_hole_moves_when_a_sentence_leaves(model: TranslationModel) -> None:
    state = decoded(model, 3, hypotheses=2)
    before, kept = addresses(state), [cache.clone() for cache in used(state)]
    state = state.select(torch.tensor([0, 1, 6, 7, 4, 5]))  # the second leaves, and the last takes its place
    assert addresses(state) == before
    for cache, old in zip(used(state), kept, strict=True):
        assert torch.equal(cache, old[[0, 3, 2]])


@torch.no_grad()
def test_as_many_rows_may_be_those_of_other_sentences(model: TranslationModel) -> None:
    state = decoded(model, 3, hypotheses=2)
    kept = [cache.clone() for cache in used(state)]
    state = state.select(torch.tensor([2, 3, 0, 1, 7, 6, 5, 4]))  # the first two swap places, and the last two
    for cache, old in zip(used(state), kept, strict=True):
        assert torch.equal(cache, old[[1, 0, 3, 2]])
