"""Properties of every family and variant."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch.testing import assert_close

from jointnmt.models import AttentionMaps, TranslationModel
from jointnmt.ops import backend
from support.families import VARIANTS, VOCABULARY, sources, target_inputs, tiny_model

SOURCE_LENGTHS, TARGET_LENGTHS = (5, 3, 6), (4, 6, 2)


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest) -> TranslationModel:
    return tiny_model(request.param)


def last_layer(attn_weights: AttentionMaps) -> dict[str, torch.Tensor]:
    names = ("encoder", "decoder", "cross", "prenet", "source", "target")
    return {name: getattr(attn_weights, name)[-1] for name in names if getattr(attn_weights, name)}


@torch.no_grad()
def test_steps_equal_forward(model: TranslationModel) -> None:
    source, target = sources(SOURCE_LENGTHS), target_inputs((6, 6, 6))
    expected = model(source, target)
    state = model.start(source)
    for position, last_ids in enumerate(target.T):
        logits, state = model.step(last_ids, state)
        assert_close(logits, expected[:, position])


@torch.no_grad()
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([0, 0, 1, 1, 2, 2], id="repeat"),
        pytest.param([2, 0], id="drop and permute"),
        pytest.param([0, 2], id="the last fills the hole"),
        pytest.param([2, 2, 0], id="unequal repeats"),
        pytest.param([1, 0, 1], id="torn apart"),
    ],
)
def test_selected_rows_go_on_as_if_they_had_been_decoded_alone(model: TranslationModel, rows: list[int]) -> None:
    source, target = sources(SOURCE_LENGTHS), target_inputs((6, 6, 6))
    picked = torch.tensor(rows)
    rest = torch.randint(4, VOCABULARY, (len(rows), 4), generator=torch.Generator().manual_seed(3))
    again = torch.tensor([len(rows) - 1, *range(1, len(rows))])
    state = model.start(source)
    for last_ids in target[:, :3].T:
        _, state = model.step(last_ids, state)
    state = state.select(picked)
    history, sides = torch.cat([target[picked, :3], rest[:, :1]], dim=1), source[picked]
    for position in range(1, 5):
        logits, state = model.step(history[:, -1], state)
        assert_close(logits, model(sides, history)[:, -1])
        if position == 2:
            state, history, sides = state.select(again), history[again], sides[again]
        if position < 4:
            history = torch.cat([history, rest[:, position : position + 1]], dim=1)


@torch.no_grad()
def test_padding_and_batch_order_change_nothing(model: TranslationModel) -> None:
    source, target = sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS)
    together = model(source, target)
    assert_close(model(source.flip(0), target.flip(0)), together.flip(0))
    for row, (source_length, target_length) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = model(source[row : row + 1, :source_length], target[row : row + 1, :target_length])
        assert_close(together[row, :target_length], alone[0])


@torch.no_grad()
def test_no_future_target_leaks(model: TranslationModel) -> None:
    source, target = sources((5, 4)), target_inputs((6, 6))
    changed = target.clone()
    changed[:, 3:] = (changed[:, 3:] - 4 + 1) % (VOCABULARY - 4) + 4
    before, after = model(source, target), model(source, changed)
    assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_every_parameter_gets_a_gradient(model: TranslationModel) -> None:
    logits = model(sources((5, 6)), target_inputs((6, 5)))
    logits.logsumexp(-1).square().sum().backward()
    without = [name for name, parameter in model.named_parameters() if not parameter.grad.any()]
    assert without == []


def test_save_and_load_is_exact(model: TranslationModel, tmp_path) -> None:
    source, target = sources((5, 6)), target_inputs((6, 5))
    expected = model(source, target)
    save_model(model, str(tmp_path / "weights.safetensors"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    load_model(model, str(tmp_path / "weights.safetensors"))
    assert_close(model(source, target), expected, rtol=0, atol=0)


def test_attention_weights_are_distributions(model: TranslationModel) -> None:
    attn_weights = AttentionMaps()
    source, target = sources(SOURCE_LENGTHS), target_inputs((6, 6, 6))
    model(source, target, attn_weights)
    padding = source == 0
    for weights in last_layer(attn_weights).values():
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=weights.dtype))
    alignment = attn_weights.alignment
    assert_close(alignment.sum(-1), torch.ones(3, 6, dtype=alignment.dtype))
    assert not alignment.transpose(1, 2)[padding].any()


def test_a_second_pass_appends_its_weights_and_leaves_the_first_ones_alone(model: TranslationModel) -> None:
    both, single = AttentionMaps(), AttentionMaps()
    source, target = sources(SOURCE_LENGTHS), target_inputs((6, 6, 6))
    model(source, target, single)
    for _ in range(2):
        model(source, target, both)
    for place in ("encoder", "decoder", "cross", "prenet", "source", "target"):
        assert_close(getattr(both, place), 2 * getattr(single, place))
    assert_close(both.alignment, single.alignment)


@pytest.mark.parametrize("variant", VARIANTS)
def test_asking_for_weights_changes_no_gradient(variant: str) -> None:
    """Fused attention does not return its weights, so they are computed in another way."""
    model = tiny_model(variant)
    source, target = sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS)
    gradients = []
    for attn_weights in (None, AttentionMaps()):
        model.zero_grad()
        with backend("sdpa"):
            model(source, target, attn_weights).tanh().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_activation_checkpointing_changes_nothing_but_memory(variant: str) -> None:
    source, target = sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS)
    results = []
    for checkpointing in (False, True):
        model = tiny_model(variant, activation_checkpointing=checkpointing, dropout=0.4).train()
        torch.manual_seed(0)
        model(source, target).tanh().sum().backward()
        results.append([parameter.grad for parameter in model.parameters()])
    assert_close(results[0], results[1], rtol=0, atol=0)


def test_attention_is_told_once_with_activation_checkpointing() -> None:
    model, maps = tiny_model("reformer-fast-shortcuts", activation_checkpointing=True).train(), AttentionMaps()
    model(sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS), maps).sum().backward()
    once = AttentionMaps()
    model.eval()(sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS), once)
    assert len(maps.target or ()) == len(once.target or ()) > 0
    assert {place: len(layers) for place, layers in maps.gates.items()} == {
        key: len(each) for key, each in once.gates.items()
    }


def test_layers_are_computed_once_where_nothing_is_trained() -> None:
    model, calls = tiny_model("reformer-fast", activation_checkpointing=True), []
    for stack in model.stacks().values():
        stack.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    model(sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS)).sum().backward()
    assert len(calls) == len(model.stacks())


def test_the_alignment_is_that_of_the_newest_pass() -> None:
    model, maps, once = tiny_model("transformer-pre"), AttentionMaps(), AttentionMaps()
    model(sources([3, 4]), target_inputs([5, 5]), maps)
    for filled in (maps, once):
        model(sources([4, 4]), target_inputs([5, 5]), filled)
    assert maps.alignment is not None and once.alignment is not None
    assert_close(maps.alignment, once.alignment, rtol=0, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_what_is_wanted_of_attention_is_recorded(variant: str) -> None:
    model, source, target = tiny_model(variant), sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS)
    model(source, target, whole := AttentionMaps())
    model(source, target, aligned := AttentionMaps(wanted=frozenset(["alignment"])))
    model(source, target, gated := AttentionMaps(wanted=frozenset(["gates"])))
    assert whole.alignment is not None and aligned.alignment is not None
    assert_close(aligned.alignment, whole.alignment)
    assert gated.alignment is None and not gated.cross and not aligned.gates
    assert gated.gates.keys() == whole.gates.keys()
    for place, layers in whole.gates.items():
        assert_close(gated.gates[place], layers)
    for maps in (aligned, gated):
        assert not (maps.encoder or maps.decoder or maps.prenet or maps.source or maps.target)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_follows_float32(variant: str) -> None:
    model = tiny_model(variant).float()
    source, target = sources(SOURCE_LENGTHS), target_inputs(TARGET_LENGTHS)
    expected = model(source, target)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(source, target)
    assert logits.dtype == torch.bfloat16
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()
