"""Hidden states of every family and variant: the right vectors for the right pieces, whatever is in the batch."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from jointnmt.analysis.states import SIDES, State, hidden_states, piece_mask, pieces, states_of
from jointnmt.data.batch import Batch
from jointnmt.models import LayerStack
from jointnmt.models.reformer import Reformer
from jointnmt.text.special import bos_id, eos_id, pad_id
from support.families import VARIANTS, sources, target_inputs, tiny_model

every_variant = pytest.mark.parametrize("variant", VARIANTS)
SOURCE_LENGTHS, TARGET_LENGTHS = (5, 3, 2), (3, 6, 4)


def batch_of(source: Tensor, target_input: Tensor) -> Batch:
    output = torch.full_like(target_input, pad_id)
    for row, ids in enumerate(target_input):
        length = int((ids != pad_id).sum())
        output[row, : length - 1], output[row, length - 1] = ids[1:length], eos_id
    return Batch(source, target_input, output, tuple(range(len(source))))


def example() -> Batch:
    return batch_of(sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS))


@every_variant
def test_there_is_a_state_of_every_piece_and_layer(variant: str) -> None:
    model, batch = tiny_model(variant), example()
    states = hidden_states(model, batch)
    assert set(states) == set(states_of(model))
    counts = {"source": sum(SOURCE_LENGTHS) - 3, "target": sum(TARGET_LENGTHS) - 3}
    for side in SIDES:
        ids = pieces(batch, side)
        assert len(ids) == counts[side]
        assert not set(ids.tolist()) & {pad_id, bos_id, eos_id}
    assert all(rows.shape == (counts[state.side], 8) for state, rows in states.items())
    config = VARIANTS[variant]
    depth = sum(getattr(config, name, 0) for name in ("encoder_layers", "decoder_layers", "prenet_layers"))
    grid = 2 * config.num_layers + 3 if "num_layers" in type(config).model_fields else 0
    assert len(states) == 2 + depth + grid
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@every_variant
def test_the_last_target_state_is_what_the_model_predicts_from(variant: str) -> None:
    model, batch = tiny_model(variant), example()
    *_, last = (state for state in states_of(model) if state.side == "target")
    logits = model(batch.source, batch.target_input)[piece_mask(batch, "target")]
    assert_close(model.output(hidden_states(model, batch)[last].double()), logits, atol=1e-4, rtol=1e-4)


@every_variant
def test_embeddings_are_those_with_scale_and_position(variant: str) -> None:
    model, batch = tiny_model(variant), example()
    states = hidden_states(model, batch)
    for side, ids in (("source", batch.source), ("target", batch.target_input)):
        embedded = getattr(model, f"{side}_embedding")(ids)[piece_mask(batch, side)]
        assert_close(states[State("embedding", side, "embedding")], embedded.float())


@every_variant
def test_states_do_not_depend_on_the_rest_of_the_batch(variant: str) -> None:
    model, batch = tiny_model(variant), example()
    together = hidden_states(model, batch)
    alone = [
        hidden_states(model, batch_of(batch.source[row : row + 1, :s], batch.target_input[row : row + 1, :t]))
        for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True))
    ]
    for state, rows in together.items():
        assert_close(rows, torch.cat([each[state] for each in alone]), msg=lambda text, state=state: f"{state}: {text}")


@every_variant
def test_target_states_know_nothing_of_what_follows(variant: str) -> None:
    model, batch = tiny_model(variant), example()
    changed = batch.target_input.clone()
    changed[1, 4] = changed[1, 4] % 19 + 4  # the second sentence's fourth piece of five
    before, after = hidden_states(model, batch), hidden_states(model, batch_of(batch.source, changed))
    same = torch.ones(sum(TARGET_LENGTHS) - 3, dtype=torch.bool)
    same[2 + 3 : 2 + 5] = False
    for state, rows in before.items():
        if state.side == "target":
            assert_close(rows[same], after[state][same])
            assert not torch.equal(rows[~same], after[state][~same])


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.startswith("reformer")])
def test_states_of_the_grid_are_means_over_the_other_side(variant: str) -> None:
    """Computed cell by cell; the mean includes end and begin marks of the other side, but no padding."""
    model, batch = tiny_model(variant), example()
    assert isinstance(model, Reformer)
    grids: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda _, arguments, output: grids.update({name: output})

    hooks = [layer.register_forward_hook(keep(str(i))) for i, layer in enumerate(model.layers, start=1)]
    hooks.append(model.layers[0].register_forward_pre_hook(lambda _, arguments: grids.update(input=arguments[0])))
    states = hidden_states(model, batch)
    for hook in hooks:
        hook.remove()
    for name, grid in grids.items():
        by_source, by_target = [], []
        for cells, s, t in zip(grid, SOURCE_LENGTHS, TARGET_LENGTHS, strict=True):
            by_source += [cells[i, :t].mean(0) for i in range(s - 1)]
            by_target += [cells[:s, j].mean(0) for j in range(1, t)]
        assert_close(states[State("grid", "source", name)], torch.stack(by_source).float())
        assert_close(states[State("grid", "target", name)], torch.stack(by_target).float())


def test_a_layer_that_a_stack_lists_several_times_has_a_state_for_each_call() -> None:
    shared = cast(Reformer, tiny_model("reformer-base"))
    shared.layers[1] = shared.layers[0]
    unrolled = cast(Reformer, tiny_model("reformer-base"))
    unrolled.layers[1] = copy.deepcopy(unrolled.layers[0])
    found, expected = hidden_states(shared, example()), hidden_states(unrolled, example())
    assert list(found) == list(expected)
    for state, rows in expected.items():
        assert_close(found[state], rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "stacks", lambda: {"grid": LayerStack([shared.layers[0]])})
        with pytest.raises(RuntimeError, match="calls a GridLayer more often than its stacks list it"):
            hidden_states(shared, example())
    assert not any(module._forward_hooks for module in shared.modules())


def test_states_of_a_model_in_training_mode_are_refused() -> None:
    with pytest.raises(ValueError, match="training mode"):
        hidden_states(tiny_model("reformer-base").train(), example())
