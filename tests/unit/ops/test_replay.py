"""Decoding positions that are recorded and replayed: the same results, with kernels alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from jointnmt.data.batch import pad_rows
from jointnmt.models import TranslationModel, build_model
from jointnmt.models.layers.cache import CachedState
from jointnmt.models.quantize import Precision, prepare_for_inference
from jointnmt.ops import layer_norm, replay
from jointnmt.ops.native import library
from jointnmt.ops.native.packed import Float32Linear, Int8Linear, PackedLinear, has_int8_gemm
from jointnmt.ops.native.recording import Memory, Recording
from jointnmt.ops.replay import ATTEMPTS, KernelRunner
from jointnmt.search import Hypothesis, SearchConfig, beam_search
from jointnmt.text.special import eos_id
from support.kernels import MODELS, VOCABULARY, needs_kernels, require_gemm

pytestmark = needs_kernels
SOURCE = torch.tensor([[4, 5, 6, 7, eos_id, 0], [9, eos_id, 0, 0, 0, 0], [8, 8, 11, 30, 21, eos_id]])
OTHER = torch.tensor([[8, 5, eos_id, 0, 0, 0], [14, 15, 9, 12, 31, eos_id], [30, 11, 8, 7, eos_id, 0]])
"""A source of the same shape."""

LEAVING = {2: [1, 0, 2, 4, 4, 5, 7, 8, 6], 4: [7, 6, 6, 4, 3, 5], 6: [4, 3, 5]}
"""Selected rows by position: the last sentence moves to the place of the first, then the remaining one does."""


def prepared(name: str, precision: Precision) -> TranslationModel:
    torch.manual_seed(7)
    return prepare_for_inference(build_model(MODELS[name], VOCABULARY, VOCABULARY).eval(), precision)


def logits_of(
    model: TranslationModel, precision: Precision, source: Tensor = SOURCE
) -> tuple[list[Tensor], KernelRunner]:
    """Logits of some positions of three sentences of three rows, two of which leave in turn, with a growing cache."""
    found = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, precision != "float32"):
        state = model.start(source).select(torch.arange(3).repeat_interleave(3))
        for position in range(14):
            if position in LEAVING:
                state = state.select(torch.tensor(LEAVING[position]))
            logits, state = model.step(torch.arange(state.slots.num_rows) % 5 + 4 + position, state)
            found.append(logits)
    assert isinstance(state, CachedState)
    return found, state._kernels


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_replayed_positions_are_those_computed_from_python(
    name: str, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_gemm(precision)
    model, replays = prepared(name, precision), []
    replayed = Recording.replay
    monkeypatch.setattr(
        Recording, "replay", lambda self, library, size: replays.append(size) or replayed(self, library, size)
    )
    logits_of(model, precision)  # work that is done only once
    replay._known[model].recorded.clear()
    replays.clear()
    first, runner = logits_of(model, precision)
    # Recorded at the first position, and again after the cache has grown.
    assert replays == [3, 3, 3, 2, 2, *[1] * 7] and not runner.obstacles
    del runner
    replays.clear()
    second, _ = logits_of(model, precision, OTHER)
    assert replays == [3, 3, 3, 3, 2, 2, *[1] * 8], "nothing was recorded anew"
    monkeypatch.setenv("JOINTNMT_GRAPHS", "0")
    for found, source in ((first, SOURCE), (second, OTHER)):
        for own, wanted in zip(found, logits_of(model, precision, source)[0], strict=True):
            assert torch.equal(own, wanted)


@pytest.mark.parametrize("name", ["transformer", "reformer-fast-fusion"])
@torch.no_grad()
def test_states_that_live_at_the_same_time_do_not_share_a_recording(name: str) -> None:
    require_gemm("float32")
    model = prepared(name, "float32")
    expected = [logits_of(model, "float32", source)[0] for source in (SOURCE, OTHER)]
    states, found = [model.start(source).select(torch.arange(3).repeat_interleave(3)) for source in (SOURCE, OTHER)], []
    for position in range(2):
        for number in (0, 1):
            logits, states[number] = model.step(torch.arange(9) % 5 + 4 + position, states[number])
            found.append(torch.equal(logits, expected[number][position]))
    assert all(found)
    runners = [state._kernels._recorded for state in states if isinstance(state, CachedState)]
    assert None not in runners and runners[0] is not runners[1]


@pytest.mark.parametrize("change", ["in place", "replaced"])
@torch.no_grad()
def test_a_recording_of_former_weights_is_not_replayed(change: str) -> None:
    norm, x = nn.LayerNorm(16), torch.randn(3, 2, 16)
    for _ in range(2):
        KernelRunner().run(norm, lambda x: layer_norm(x, norm), x, ())
    if change == "in place":
        norm.weight.mul_(2)
    else:
        norm.weight = nn.Parameter(2 * norm.weight)
    assert torch.equal(KernelRunner().run(norm, lambda x: layer_norm(x, norm), x, ()), layer_norm(x, norm))


@pytest.mark.parametrize("kind", [Float32Linear, Int8Linear])
@torch.no_grad()
def test_a_recording_of_another_packed_layer_is_not_replayed(kind: type[PackedLinear]) -> None:
    if not kind.packs(torch.empty(16, 16)) or (kind is Int8Linear and not has_int8_gemm()):
        pytest.skip("no kernels for such layers")
    model, x = nn.Sequential(kind(torch.randn(32, 16), None)), torch.randn(3, 2, 16)
    for _ in range(2):
        KernelRunner().run(model, model, x, ())
    for _ in range(4):  # perhaps at the address of the former one
        model[0] = kind(torch.randn(32, 16), None)
        assert torch.equal(KernelRunner().run(model, model, x, ()), model(x))


@torch.no_grad()
def test_a_recording_keeps_no_state_alive_and_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    require_gemm("float32")
    model = prepared("transformer", "float32")
    state = model.start(SOURCE)
    for position in range(3):
        _, state = model.step(torch.full((3,), 4 + position), state)
    assert isinstance(state, CachedState)
    alive = [weakref.ref(each) for each in state._memory()]
    known = replay._known[model].recorded
    assert len(known) == 1
    del state
    gc.collect()
    assert not [each for each in alive if each() is not None]
    monkeypatch.setattr(replay, "KEPT_BYTES", 1 + max(each.size for each in known.values()))
    model.step(torch.full((3,), 4), model.start(SOURCE[:, :3]))
    assert [on[-1][1][0] for on in known] == [8], "that of the latest alone"


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_translations_are_equal_whatever_the_order_in_which_sentences_leave(
    name: str, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_gemm(precision)
    model, recorded = prepared(name, precision), []
    sources = pad_rows([*([8 + row] * length + [eos_id] for row, length in enumerate([4, 1, 6, 3, 1, 7, 2, 5]))])
    search = SearchConfig(beam_size=4, max_length_factor=1.0, max_length_offset=2)  # random models rarely end by choice

    def translated() -> list[list[Hypothesis]]:
        with torch.autocast("cpu", torch.bfloat16, precision != "float32"):
            return beam_search(model, sources, search, num_best=3)

    translated()  # work that is done only once
    replay._known[model].recorded.clear()
    record = Recording.recorded
    monkeypatch.setattr(Recording, "recorded", lambda self, watched: recorded.append(1) or record(self, watched))
    found = translated()
    assert recorded == [1]
    monkeypatch.setenv("JOINTNMT_GRAPHS", "0")
    assert translated() == found and recorded == [1]


class Doubled(nn.Module):
    """A layer norm, and PyTorch's product with two."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * layer_norm(x, self.norm)


@torch.no_grad()
def test_what_pytorch_computes_is_not_replayed() -> None:
    model, runner = Doubled(), KernelRunner()
    for _ in range(4):
        x = torch.randn(3, 16)
        assert torch.equal(runner.run(model, model, x, ()), 2 * layer_norm(x, model.norm))
    assert runner.obstacles == ["aten::mul.Tensor"] * ATTEMPTS


def twice(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """A function with other kernels."""
    return 2 * layer_norm(layer_norm(x, norm), norm)


def exponential(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """A function in which PyTorch computes the input of a kernel."""
    return layer_norm(torch.exp(x), norm)


@pytest.mark.parametrize("other", [twice, exponential])
@torch.no_grad()
def test_other_kernels_or_tensors_than_those_seen_are_no_recording(
    other: Callable[[Tensor, nn.LayerNorm], Tensor],
) -> None:
    """A function that called kernels alone may not do so when other kernels are called, or read other tensors."""
    norm, runner = nn.LayerNorm(16), KernelRunner()
    runner.run(norm, lambda x: layer_norm(x, norm), torch.randn(3, 16), ())
    x = torch.randn(4, 16)
    assert torch.equal(runner.run(norm, lambda x: other(x, norm), x, ()), other(x, norm))
    assert runner.obstacles == ["other kernels or tensors than before"]
    assert not replay._known[norm].proven


@torch.no_grad()
def test_a_replay_computes_the_sentences_that_are_left() -> None:
    norm, runner, x = nn.LayerNorm(16), KernelRunner(), torch.randn(3, 2, 16)
    run = partial(runner.run, norm, lambda x: layer_norm(x, norm), memory=())
    expected, first = run(x), run(x[:1])
    assert torch.equal(first, expected[:1]) and first.untyped_storage().nbytes() == first.nbytes
    assert torch.equal(run(x[1:]), expected[1:]) and torch.equal(first, expected[:1])
    assert torch.equal(run(torch.cat([x, x])), torch.cat([expected, expected])), "more than were recorded"


@torch.no_grad()
def test_what_is_not_computed_for_each_sentence_is_not_replayed() -> None:
    norm, recording = nn.LayerNorm(16), Recording(3)
    with recording.recorded():
        layer_norm(torch.empty(4, 16), norm)  # three sentences cannot have equal shares of four rows
    assert recording.obstacle == "a kernel whose work is not the same for each sentence"
    with pytest.raises(ValueError, match="cannot replay 4 sentences: the recording is for 3 at most"):
        recording.replay(library(), 4)


def test_memory_is_taken_again_when_nothing_reads_it() -> None:
    memory = Memory()
    first = memory.empty((3, 16), torch.float32)
    address = first.data_ptr()
    part = first[1:]
    del first
    gc.collect()
    other = memory.empty((3, 16), torch.float32)
    assert other.data_ptr() != address, "a part of it is in use"
    del part
    gc.collect()
    assert memory.empty((6, 16), torch.bfloat16).data_ptr() == address
    assert memory.owns(address + 10) and not memory.owns(torch.empty(3).data_ptr())


@pytest.mark.parametrize("name", ["transformer", "reformer-fast"])
@torch.no_grad()
def test_logits_are_the_callers(name: str) -> None:
    """Logits of recorded, replayed and grown positions are not overwritten by later ones."""
    require_gemm("float32")
    model = prepared(name, "float32")
    state, found = model.start(SOURCE), []
    for position in range(12):
        logits, state = model.step(torch.full((3,), 4 + position), state)
        found.append((logits, logits.clone()))
    assert all(torch.equal(logits, copied) for logits, copied in found)
