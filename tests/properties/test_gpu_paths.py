"""Paths that only a GPU takes, tested as far as possible on a CPU: PyTorch's fused attention, and replayed decoding
positions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.traffic import AutocastOfCuda
from examples.relative_grid import Alibi, AlibiConfig
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jointnmt.models import FAMILIES, AttentionMaps, ModelConfig, TranslationModel, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.layers import slots
from jointnmt.models.layers.embedding import TokenEmbedding, VocabularyProjection
from jointnmt.models.layers.linear import Linear
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.quantize import prepare_for_inference
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops import backend, cuda_graph, log_softmax
from jointnmt.ops.autocast import autocast_to
from jointnmt.ops.cuda_graph import CUDAGraphRunner, GraphsByShape
from jointnmt.search.beam import SearchConfig, beam_search
from jointnmt.text.special import bos_id, eos_id, pad_id
from jointnmt.training.gradients import FlatGradients
from jointnmt.training.loss import cross_entropy_sums
from support.families import VARIANTS, sources, tiny_model
from support.tiers import mostly_slow
from support.tiny import TinyModel, tiny_trainer

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
    """Let the CPU take the GPU's path; for each call of the fused kernels, whether it is causal without a mask."""
    calls: list[bool] = []
    library = functional.scaled_dot_product_attention

    def fused(*inputs: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        assert all(each.ndim == 4 for each in inputs)
        calls.append(is_causal and attn_mask is None)
        return library(*inputs, attn_mask=attn_mask, is_causal=is_causal)

    with monkeypatch.context() as patch, backend("sdpa"):
        patch.setattr(functional, "scaled_dot_product_attention", fused)
        yield calls


def model_and_text(name: str) -> tuple[TranslationModel, Tensor, Tensor]:
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


class Tape(TorchDispatchMode):
    """A CUDA graph on a CPU: repeats the same operations on the same memory, without Python in between."""

    not_in_graphs = ("aten::_local_scalar_dense", "aten::nonzero", "aten::lift_fresh", "aten::_unique2")
    """Operations that wait for the GPU or copy from the host."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.failed = False
        self.before: list[tuple[Tensor, Tensor]] = []
        """Tensors that were written in place, and their previous content."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.name in self.not_in_graphs:
            self.failed = True
            raise RuntimeError(f"{func._schema.name} is not permitted when stream is capturing")
        for value, argument in zip(args, func._schema.arguments, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Tensor):
                self.before.append((value, value.clone()))
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def undo(self) -> None:
        """Capturing computes nothing."""
        with torch._C._AutoDispatchBelowAutograd():
            for written, before in reversed(self.before):
                written.copy_(before)
            if self.calls and isinstance(self.calls[-1][-1], Tensor):
                self.calls[-1][-1].fill_(torch.nan)

    def play(self) -> None:
        with torch._C._AutoDispatchBelowAutograd():
            for func, args, kwargs, result in self.calls:
                for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Stream:
    """Stand-in for a GPU's stream, which computes immediately."""

    def __init__(self, log: list[str], device: torch.device) -> None:
        self.log, self.device = log, device

    def wait_stream(self, other: Stream) -> None:
        assert other is not self
        self.log.append("waited")


@pytest.fixture
def log(fused_calls: list[bool], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the CPU capture and replay positions; a record of both."""
    log: list[str] = []
    usual = Stream(log, torch.device("cpu"))
    current = [usual]

    @contextmanager
    def stream(chosen: Stream) -> Iterator[None]:
        current.append(chosen)
        try:
            yield
        finally:
            current.pop()

    class Graph:
        def capture_begin(self, pool: tuple[int, int], capture_error_mode: str) -> None:
            assert current[-1] is not usual
            assert pool == (0, 7)
            assert not torch.is_autocast_cache_enabled()
            log.append("captured")
            self.tape = Tape()
            self.tape.__enter__()

        def capture_end(self) -> None:
            self.tape.__exit__(None, None, None)
            if self.tape.failed:
                raise RuntimeError("operation failed due to a previous error during capture")
            self.tape.undo()

        def replay(self) -> None:
            assert current[-1] is usual
            log.append("replayed")
            self.tape.play()

    fakes = {
        "Stream": partial(Stream, log),
        "current_stream": lambda _: current[-1],
        "stream": stream,
        "device": lambda _: nullcontext(),
        "CUDAGraph": Graph,
        "MemPool": lambda: SimpleNamespace(id=(0, 7)),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    for module in (slots, cuda_graph):
        monkeypatch.setattr(module, "captures", lambda _: True)
    for name, figures in (("mem_get_info", (60, 100)), ("memory_reserved", 0), ("memory_allocated", 0)):
        monkeypatch.setattr(torch.cuda, name, lambda _, figures=figures: figures)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, partial(log.append, name))
    monkeypatch.setattr(cuda_graph, "uncapturable", set())
    cuda_graph.shared_place.cache_clear()
    yield log
    cuda_graph.shared_place.cache_clear()


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_replayed_positions_translate_alike(name: str, mixed: bool, request: pytest.FixtureRequest) -> None:
    model, source, _ = model_and_text(name)
    request.getfixturevalue("fused_calls")
    log = request.getfixturevalue("log")
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        found = [hypotheses[0] for hypotheses in beam_search(model.eval(), source, SearchConfig(beam_size=3))]
        assert log.count("replayed") > 1 < log.count("captured")
        for ids, each in zip(source, found, strict=True):
            tokens = [*each.ids, eos_id][: len(each.token_log_probabilities)]
            target = torch.tensor([[bos_id, *tokens]])
            logits = model(ids[None, ids != pad_id], target[:, :-1])
            expected = log_softmax(logits)[0].gather(1, target[0, 1:, None]).flatten()
            own = torch.tensor(each.token_log_probabilities)
            assert_close(own, expected, rtol=0, atol=0.06 if mixed else 1e-4)


@torch.no_grad()
@pytest.mark.parametrize("variant", mostly_slow([*VARIANTS, "alibi"], ["transformer-fusion", "reformer-fast", "alibi"]))
def test_replays_follow_rows_that_branch_and_leave_and_caches_that_grow(
    variant: str, request: pytest.FixtureRequest
) -> None:
    model = Alibi(AlibiConfig(**SIZES, num_layers=2), 23, 23).eval() if variant == "alibi" else tiny_model(variant)
    source = sources((9, 3, 8, 9))
    states = [model.start(source)]
    log = request.getfixturevalue("log")
    states.append(model.start(source))
    generator, sentences = torch.Generator().manual_seed(5), 4
    rows = torch.arange(sentences).repeat_interleave(3)
    for position in range(40):
        last_ids = torch.randint(4, 23, (len(rows),), generator=generator)
        logits = []
        for number, state in enumerate(states):
            found, states[number] = model.step(last_ids, state.select(rows))
            logits.append(found)
        assert_close(*logits)
        sentences -= position in (8, 20)  # the last one leaves
        rows = torch.randint(3, (sentences, 3), generator=generator) + 3 * torch.arange(sentences)[:, None]
        rows = rows.flatten()
    assert log.count("captured") == 4, "at the beginning, when the caches have grown, and when a sentence has left"
    assert log.count("replayed") > 10
    assert log.count("waited") == 2 * log.count("captured"), "each stream for what the other has done"


@torch.no_grad()
def test_a_great_many_rows_are_not_padded_for_replays(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = tiny_model("reformer-base"), sources((9, 3))
    for largest, expected in ((2 * 9 * 16, 10), (2 * 9 * 16 - 1, 0)):
        monkeypatch.setattr(slots, "LARGEST_MASK", largest)
        log.clear()
        state = model.start(source)
        for _ in range(12):
            _, state = model.step(torch.tensor([4, 5]), state)
        assert log.count("replayed") == expected


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_weights_in_half_precision_compute_what_autocast_does(name: str, fused_calls: list[bool]) -> None:
    model, source, target = model_and_text(name)
    model.eval()
    half = prepare_for_inference(model, "float16")
    kinds = {type(module): module.weight.dtype for module in half.modules() if hasattr(module, "weight")}
    assert kinds[Linear] == kinds[VocabularyProjection] == kinds[LayerNorm] == torch.float16
    assert kinds[TokenEmbedding] == torch.float32
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(half(source, target), model(source, target))
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", MODELS)
def test_states_stay_in_half_precision(name: str, attention_dropout: float, fused_calls: list[bool]) -> None:
    config = MODELS[name].model_copy(update={"attention_dropout": attention_dropout})
    model, source, target = build_model(config, VOCABULARY, VOCABULARY), *torch.randint(4, VOCABULARY, (2, 4, 9))
    with torch.autocast("cpu", torch.bfloat16), AutocastOfCuda() as autocast:
        assert model(source, target).dtype == torch.bfloat16
    assert not autocast.widened
    assert bool(fused_calls) == (attention_dropout == 0)


def backward_passes(model: TranslationModel, precision: str, gradients: FlatGradients) -> GraphsByShape:
    """Backward passes of `model`, which add to its gradients as in training."""

    def add_gradient(source: Tensor, target: Tensor) -> Tensor:
        with autocast_to(precision, torch.device("cpu")):
            logits = model(source, target)
        loss, nll = cross_entropy_sums(logits, target.roll(-1, 1), label_smoothing=0.1)
        loss.backward()
        return torch.stack([loss.detach(), nll])

    return GraphsByShape(add_gradient)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "reformer-fast"])
def test_replayed_updates_are_those_that_are_computed(
    name: str, precision: str, request: pytest.FixtureRequest
) -> None:
    """Dropout included, for batches of two shapes, with the weights of the moment."""
    config = MODELS[name].model_copy(update={"dropout": 0.1})
    request.getfixturevalue("fused_calls")
    log = request.getfixturevalue("log")
    found = []
    for replayed in (True, False):
        torch.manual_seed(2)
        model = build_model(config, VOCABULARY, VOCABULARY)
        gradients = FlatGradients(model)
        passes = backward_passes(model, precision, gradients)
        if not replayed:
            passes.close()
        texts = torch.randint(4, VOCABULARY, (6, 2, 3, 9))
        results = []
        for number, (source, target) in enumerate(texts):
            torch.manual_seed(number)
            width = 9 - number % 2
            gradients.zero()
            results.append(passes.run(source[:, :width], target, memory=list(model.buffers())))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
                    results.append(parameter.grad.clone())
        found.append(results)
    assert all(map(torch.equal, *found))
    assert log.count("captured") == log.count("replayed") == 2


class Warmer(TinyModel):
    """A model with a temperature that rises at each call, in Python."""

    temperature = 1.0

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        self.temperature += 0.1
        return super().forward(source, target_input, attn_weights) / self.temperature


class Frozen(Warmer):
    """The same, and says what does not hold."""

    capturable = True


def test_only_updates_of_families_that_say_so_are_replayed(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph would keep the temperature of its capture; what a base class says does not count."""

    def losses(kind: type[TinyModel]) -> list[float]:
        log.clear()
        torch.manual_seed(2)
        steps = zip(tiny_trainer(model=kind()).steps(), range(40), strict=False)
        return [report.sums.loss for report, _ in steps]

    with monkeypatch.context() as patch:
        patch.setattr(cuda_graph, "captures", lambda _: False)
        expected = losses(Warmer)
    assert losses(Warmer) == expected and not log
    assert losses(Frozen) != pytest.approx(expected, rel=1e-3) and "replayed" in log
    assert all(vars(family.model)["capturable"] for family in FAMILIES.values()) and not TranslationModel.capturable


def test_graphs_end_where_memory_is_short_or_what_they_read_is_replaced(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, inputs, table = GraphsByShape(lambda x: 2 * x), torch.ones(6, 5), torch.ones(3)
    run = partial(graphs.run, memory=[table])

    def happens(*given: Tensor) -> list[str]:
        """Events on the device in three runs of each batch."""
        log.clear()
        for x in [x for x in given for _ in range(3)]:
            assert torch.equal(run(x), 2 * x)
        return [event for event in log if event != "waited"]

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (25, 100))
    assert not happens(inputs), "too little memory is free"
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 10)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 9)
    assert happens(inputs[1:]) == ["empty_cache", "captured", "replayed"], "some of it is free in PyTorch's cache"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (26, 100))
    assert happens(inputs[2:]) == ["captured", "replayed"]
    monkeypatch.setattr(cuda_graph, "MOST_GRAPHS", 2)
    assert not happens(inputs[3:])
    assert happens(inputs[1:]) == ["replayed"] * 3
    table = torch.ones(3)
    run = partial(graphs.run, memory=[table])
    assert happens(inputs[1:]) == ["captured", "replayed"], "a graph reads memory that is not there any more"
    graphs.close()
    assert log[-1] == "synchronize"
    assert not happens(inputs[1:], inputs[4:])


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, RuntimeError])
def test_a_batch_that_cannot_be_captured_for_memory_is_computed(kind: type[RuntimeError], log: list[str]) -> None:
    def compute(x: Tensor) -> Tensor:
        if x.shape == (2,) and log[-1:] == ["captured"]:
            raise kind("CUDA error: out of memory")
        return 2 * x

    graphs = GraphsByShape(compute)
    for x in [torch.ones(2)] * 4 + [torch.ones(3)] * 3:
        assert torch.equal(graphs.run(x), 2 * x)
    assert not cuda_graph.uncapturable
    assert log.count("captured") == 2
    assert log.count("replayed") == 1


def test_what_fails_while_a_batch_is_computed_is_not_computed_again(log: list[str]) -> None:
    """Part of its gradient may have been added."""
    calls = []

    def compute(x: Tensor) -> Tensor:
        calls.append(x)
        if len(calls) == 2:
            raise torch.OutOfMemoryError
        return 2 * x

    graphs, x = GraphsByShape(compute), torch.ones(2)
    graphs.run(x)
    with pytest.raises(torch.OutOfMemoryError):
        graphs.run(x)
    assert len(calls) == 2
    assert "captured" not in log


def test_each_capture_asks_for_more_repetitions(log: list[str]) -> None:
    runner, x = CUDAGraphRunner(), torch.ones(2)
    places = torch.zeros(6, 3).unbind()
    for place, (repetitions, count) in zip(places, ((1, 0), (2, 1), (2, 1), (3, 2), (4, 2), (9, 3)), strict=True):
        for _ in range(repetitions):
            assert torch.equal(runner.run(lambda x: 2 * x, x, [place]), 2 * x)
        assert log.count("captured") == count


def test_what_cannot_be_captured_is_computed(log: list[str], caplog: pytest.LogCaptureFixture) -> None:
    runner, x = CUDAGraphRunner(), torch.ones(2)
    for _ in range(5):
        assert torch.equal(runner.run(lambda x: x * float(x[0] + 1), x, []), 2 * x)
    (message,) = caplog.messages
    assert "aten::_local_scalar_dense is not permitted when stream is capturing" in message
    assert "JOINTNMT_GRAPHS=0" in message
    assert log == ["waited", "captured", "waited"]
    assert cuda_graph.uncapturable == {torch.device("cpu")}


def test_where_there_is_no_memory_to_capture_later_batches_try_again(
    log: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    failing = [True]

    def compute(x: Tensor) -> Tensor:
        if failing[0] and "captured" in log:
            raise torch.OutOfMemoryError
        return 2 * x

    x, runner = torch.ones(2), CUDAGraphRunner()
    runner.run(compute, x, [])
    assert torch.equal(runner.run(compute, x, []), 2 * x)
    assert log == ["waited", "captured", "waited"]
    assert not caplog.messages
    assert not cuda_graph.uncapturable
    failing[0], runner = False, CUDAGraphRunner()
    for _ in range(3):
        assert torch.equal(runner.run(compute, x, []), 2 * x)
    assert log.count("replayed") == 1


def test_capturing_is_for_gpus_and_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOINTNMT_GRAPHS", raising=False)
    monkeypatch.setattr(cuda_graph, "uncapturable", {torch.device("cuda:0")})
    assert cuda_graph.captures(torch.device("cuda:1"))
    assert not cuda_graph.captures(torch.device("cuda:0"))
    assert not cuda_graph.captures(torch.device("cpu"))
    monkeypatch.setenv("JOINTNMT_GRAPHS", "0")
    assert not cuda_graph.captures(torch.device("cuda:1"))
