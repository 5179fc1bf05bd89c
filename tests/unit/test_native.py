"""Kernels of our own against PyTorch: values, gradients, noise, and what happens where they cannot be had."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.testing import assert_close

from jointnmt.models import ModelConfig, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.layers.attention import SelfAttention, Sight, attend
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.norm import LayerNorm
from jointnmt.models.layers.shortcut import _Mixture
from jointnmt.models.quantize import for_decoding
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops import native
from jointnmt.ops.native import calls, functions, operations
from jointnmt.ops.native.linear import BFloat16Linear, Int8Linear, has_int8_products
from jointnmt.search.beam import SearchConfig, beam_search
from jointnmt.training.loss import cross_entropy_sums

needs_kernels = pytest.mark.skipif(native.library() is None, reason="needs a C++ compiler")
SIZES = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 48, "dropout": 0.0}
MODELS: dict[str, ModelConfig] = {
    "transformer": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2),
    "transformer-post": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2, norm="post"),
    "transformer-faithful": TransformerConfig(
        **SIZES, encoder_layers=2, decoder_layers=2, faithful=True, attention_bias=False, shortcuts=ShortcutConfig()
    ),
    "transformer-shortcuts": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=2, shortcuts=ShortcutConfig()),
    "reformer-base": ReformerBaseConfig(**SIZES, num_layers=2),
    "reformer-base-shortcuts": ReformerBaseConfig(**SIZES, num_layers=2, shortcuts=ShortcutConfig()),
    "reformer-base-source-shortcuts": ReformerBaseConfig(
        **SIZES, num_layers=2, shortcuts=ShortcutConfig(places=("source",))
    ),
    "reformer-fast": ReformerFastConfig(**SIZES, num_layers=2, prenet_layers=2),
    "reformer-fast-checkpointed": ReformerFastConfig(
        **SIZES, num_layers=2, prenet_layers=2, activation_checkpointing=True
    ),
    "reformer-fast-fusion": ReformerFastConfig(
        **SIZES, num_layers=2, prenet_layers=2, shortcuts=ShortcutConfig(kind="fusion")
    ),
}
VOCABULARY = 40


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(operations, "usable", lambda *_: False)
        yield patch


@contextmanager
def number_of_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def losses_and_gradients(
    config: ModelConfig, kind: torch.dtype, seed: int = 2
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    torch.manual_seed(seed)
    model = build_model(config, VOCABULARY, VOCABULARY)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    source, target = torch.randint(4, VOCABULARY, (2, 4, 19)).unbind()
    source[1, 3:] = source[2, 17:] = target[3, 9:] = 0
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
        logits = model(source, target)
    loss, _ = cross_entropy_sums(logits, target, 0.1)
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_those_of_the_plain_path(name: str, without_kernels: pytest.MonkeyPatch) -> None:
    """In float32 to 1e-5; in bfloat16 they are hardly further from those of float32 than the plain path's.

    But for at most one draw, where rounding decides whether ReLU lets a number next to 0 through.
    """
    seeds = range(2, 8)  # of a single draw the errors in bfloat16 are anything up to twice as large, on either path
    plain = {
        kind: [losses_and_gradients(MODELS[name], kind, seed) for seed in seeds]
        for kind in (torch.float32, torch.bfloat16)
    }
    without_kernels.undo()
    own = {kind: [losses_and_gradients(MODELS[name], kind, seed) for seed in seeds] for kind in plain}
    errors = torch.zeros(2)
    largest = []
    for i in range(len(seeds)):
        exact_loss, exact = plain[torch.float32][i]
        length = torch.cat([gradient.flatten() for gradient in exact.values()]).norm()
        assert_close(own[torch.float32][i][0], exact_loss, rtol=1e-5, atol=0)
        assert_close(own[torch.bfloat16][i][0], exact_loss, rtol=4e-3, atol=0)
        gradients = own[torch.float32][i][1]
        differences = {name: (gradients[name] - gradient).norm() for name, gradient in exact.items()}
        relative = {name: float(differences[name] / (exact[name].norm() + 0.01 * length)) for name in exact}
        largest.append(max((error, name, seeds[i]) for name, error in relative.items()))
        errors += torch.stack(
            [
                torch.cat([(gradients[name] - gradient).flatten() for name, gradient in exact.items()]).norm() / length
                for _, gradients in (own[torch.bfloat16][i], plain[torch.bfloat16][i])
            ]
        )
    *others, last = sorted(largest)
    assert others[-1][0] <= 1e-5 and last[0] <= 1e-2, largest
    assert errors[0] <= 1.3 * errors[1]


@needs_kernels
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 7), 1), ((2, 5, 7), 2), ((2, 37), 1), ((1, 3, 16), 2)])
def test_attention(shape: tuple[int, ...], axis: int, causal: bool, noisy: bool) -> None:
    """Against the plain form in float64, along either axis, with padding, biases and dropped weights."""
    torch.manual_seed(3)
    heads, size = 3, 16
    embed_dim, length = heads * size, shape[axis]
    projected, bias = torch.randn(*shape, 3 * embed_dim), torch.randn(3 * embed_dim)
    lengths = None if causal else torch.randint(1, length + 1, shape[:1])
    kept = [place for number, place in enumerate(shape) if number != axis]
    noise = torch.rand(shape[0], *[1] * (len(kept) - 1), heads, length, length) if noisy else None
    allowed = torch.ones(length, length).tril().bool() if causal else torch.arange(length) < lengths[:, None, None]
    if not causal:
        allowed = allowed.view(-1, *[1] * (len(kept) + 1), length)
    mask = torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf).double()

    def plain(projected: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (heads, size)).movedim(axis, -2) for part in (projected + bias).chunk(3, dim=-1)
        )
        if noise is None:
            result = attend(query, key, value, Sight(mask))
        else:
            weights = (query @ key.transpose(-2, -1) / size**0.5 + mask).softmax(-1) * noise
            result = weights @ value
        return result.movedim(-2, axis).flatten(-2)

    inputs = projected.double().requires_grad_(), bias.double().requires_grad_()
    expected = plain(*inputs)
    gradient = torch.randn_like(expected)
    expected_gradients = torch.autograd.grad(expected, inputs, gradient)
    for parts in ((projected,), projected.split([embed_dim, 2 * embed_dim], dim=-1)):
        leaves = [part.clone().requires_grad_() for part in parts]
        own_bias = bias.clone().requires_grad_()
        result = operations.attention(leaves, own_bias, heads, axis, lengths, causal, noise)
        assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
        *gradients, of_bias = torch.autograd.grad(result, [*leaves, own_bias], gradient.float())
        assert_close(torch.cat(gradients, -1).double(), expected_gradients[0], rtol=1e-5, atol=1e-5)
        assert_close(of_bias.double(), expected_gradients[1], rtol=1e-5, atol=1e-4)


@needs_kernels
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("noise_shape", [None, (2, 1, 5, 32), (2, 3, 1, 32), (2, 1, 1, 32), (2, 3, 5, 32)])
def test_residual_and_norm(noise_shape: tuple[int, ...] | None, threads: int) -> None:
    torch.manual_seed(4)
    x, update = torch.randn(2, 2, 3, 5, 32).unbind()
    bias, norm = torch.randn(32), torch.nn.LayerNorm(32)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    noise = None if noise_shape is None else torch.rand(noise_shape)
    inputs = [tensor.requires_grad_() for tensor in (x, update, bias)]
    expected = x + (1 if noise is None else noise) * (update + bias)
    wanted = (expected, norm(expected))
    gradients = tuple(torch.randn(2, *x.shape))
    expected_gradients = torch.autograd.grad(wanted, [*inputs, *norm.parameters()], gradients)
    with number_of_threads(threads):
        results = operations.residual_norm(x, update, bias, noise, norm)
        assert_close(results, wanted, rtol=1e-5, atol=1e-5)
        own = torch.autograd.grad(results, [*inputs, *norm.parameters()], gradients)
    assert_close(own, expected_gradients, rtol=1e-5, atol=1e-5)


def test_projections_sum_their_weights_gradient_over_blocks() -> None:
    torch.manual_seed(10)
    x, gradient = torch.randn(5, 1000, 16, requires_grad=True), torch.randn(5, 1000, 24)
    linear = torch.nn.Linear(16, 24)
    assert x[..., 0].numel() > 2 * functions.BLOCK_ROWS
    expected = torch.autograd.grad(linear(x), (x, linear.weight), gradient)
    own = torch.autograd.grad(operations.project(x, linear), (x, linear.weight), gradient)
    assert_close(own, expected, rtol=1e-4, atol=1e-4)


def has_products(kind: torch.dtype) -> bool:
    return native.library() is not None and calls.has_products(kind)


no_products = "needs a C++ compiler and a processor with AVX2, for bfloat16 one without AMX"
needs_products = pytest.mark.skipif(not has_products(torch.bfloat16), reason=no_products)


@pytest.fixture(params=["float32", "float32 by the library", "bfloat16"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """The type to multiply in; by products of our own, whatever the processor, or by PyTorch's."""
    name, *by_library = request.param.split(maxsplit=1)
    kind: torch.dtype = getattr(torch, name)
    if native.library() is None or not (by_library or has_products(kind)):
        pytest.skip(no_products)
    if by_library:
        monkeypatch.setattr(calls, "_compiled_products", lambda _: False)
    monkeypatch.setattr(calls, "pytorch_is_faster_in_float32", lambda: False)
    return kind


PRODUCT_SIZES = [(16, 16), (48, 80), (64, 128), (144, 32)]
"""Features before and after: single vectors, parts of a panel, whole panels, several."""


def exact_and_rounded(kind: torch.dtype, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers that bfloat16 has, in float64 and in `kind`."""
    rounded = torch.randn(shape).bfloat16()
    return rounded.double().requires_grad_(), rounded.to(kind).requires_grad_()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 6, 97, 509])
@pytest.mark.parametrize("sizes", PRODUCT_SIZES)
def test_products_of_a_projection(sizes: tuple[int, int], rows: int, threads: int, kind: torch.dtype) -> None:
    """Results are the exact ones, rounded; the gradient of the weights is a sum in float32."""
    precision = 2**-8 if kind == torch.bfloat16 else 1e-5
    torch.manual_seed(14)
    (x64, x), (weight64, weight) = exact_and_rounded(kind, rows, sizes[0]), exact_and_rounded(kind, sizes[1], sizes[0])
    bias64, bias = exact_and_rounded(kind, sizes[1])
    gradient = torch.randn(rows, sizes[1]).bfloat16().to(kind)
    expected = x64 @ weight64.t() + bias64
    expected_gradients = torch.autograd.grad(expected, (x64, weight64, bias64), gradient.double())
    with number_of_threads(threads):
        parameters = x, *(parameter.detach().float().requires_grad_() for parameter in (weight, bias))
        own = functions.ProjectionFunction.apply(*parameters)
        own_gradients = torch.autograd.grad(own, parameters, gradient)
    assert_close(own.double(), expected, rtol=precision, atol=1e-4)
    assert_close(own_gradients[0].double(), expected_gradients[0], rtol=precision, atol=1e-4)
    for own_gradient, expected_gradient in zip(own_gradients[1:], expected_gradients[1:], strict=True):
        assert_close(own_gradient.double(), expected_gradient, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("noise_shape", [None, (2, 1, 1), (2, 1, 51), (2, 5, 51)])
@pytest.mark.parametrize("sizes", PRODUCT_SIZES)
def test_products_of_a_feed_forward_block(
    sizes: tuple[int, int], noise_shape: tuple[int, ...] | None, threads: int, kind: torch.dtype
) -> None:
    torch.manual_seed(15)
    embed_dim, ffn_dim = sizes
    x64, x = exact_and_rounded(kind, 2, 5, 51, embed_dim)
    first64, first = exact_and_rounded(kind, ffn_dim, embed_dim)
    second64, second = exact_and_rounded(kind, embed_dim, ffn_dim)
    bias64, bias = exact_and_rounded(kind, ffn_dim)
    noise = None if noise_shape is None else torch.randint(0, 2, (*noise_shape, ffn_dim)).to(kind) * 2
    gradient = torch.randn(x.shape).bfloat16().to(kind)
    hidden = (x64 @ first64.t() + bias64).relu()
    expected = (hidden if noise is None else hidden * noise.double()) @ second64.t()
    parameters64 = x64, first64, bias64, second64
    expected_gradients = torch.autograd.grad(expected, parameters64, gradient.double())
    parameters = x, *(parameter.detach().float().requires_grad_() for parameter in (first, bias, second))
    with number_of_threads(threads):
        own = functions.FeedForwardFunction.apply(*parameters, noise)
        own_gradients = torch.autograd.grad(own, parameters, gradient)
    for value, exact in zip((own, *own_gradients), (expected, *expected_gradients), strict=True):
        error = (value - exact).norm() / exact.norm()  # hidden states and their gradients are rounded on the way
        assert error < (0.01 if kind == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("sizes", PRODUCT_SIZES)
def test_products_without_gradient_are_the_same(sizes: tuple[int, int], kind: torch.dtype) -> None:
    torch.manual_seed(16)
    hidden, output = torch.nn.Linear(*sizes), torch.nn.Linear(*reversed(sizes))
    x = torch.randn(2, 5, 51, sizes[0]).to(kind)
    assert x[..., 0].numel() >= operations.MANY_ROWS
    expected = operations.project(x, hidden, hidden.bias), operations.feed_forward(x, hidden, output, None)
    with torch.no_grad():
        own = operations.project(x, hidden, hidden.bias), operations.feed_forward(x, hidden, output, None)
    for with_gradient, without in zip(expected, own, strict=True):
        assert torch.equal(with_gradient, without)


@needs_kernels
def test_gradients_of_weights_are_summed_by_blocks(kind: torch.dtype) -> None:
    """A single sum of many rows would lose digits."""
    torch.manual_seed(17)
    (x64, x), (gradient64, gradient) = (exact_and_rounded(kind, 1, 50_000, 32) for _ in range(2))
    weight, bias = torch.randn(32, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    own = torch.autograd.grad(functions.ProjectionFunction.apply(x, weight, bias), (weight, bias), gradient)
    expected = gradient64[0].t() @ x64[0], gradient64[0].sum(0)
    for value, exact in zip(own, expected, strict=True):
        assert (value - exact).norm() <= 1e-6 * exact.norm()


@pytest.mark.parametrize(
    "kind", ["float32", "float32 by the library", "bfloat16", "bfloat16 by the library"], indirect=True
)
def test_products_of_the_norm_of_what_is_not_contiguous(kind: torch.dtype) -> None:
    """The norm is not kept for the backward pass, but computed again."""
    torch.manual_seed(18)
    x = (2 + 3 * torch.randn(3, 32, 7).transpose(1, 2)).to(kind)
    norm, hidden, output = torch.nn.LayerNorm(32), torch.nn.Linear(32, 48), torch.nn.Linear(48, 32)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    parameters = [*norm.parameters(), hidden.weight]
    wanted = norm(x.float())
    expected = hidden(wanted), functional.linear(hidden(wanted).relu(), output.weight)
    _, normed = operations.residual_norm(x, None, None, None, norm)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        own = operations.project(normed, hidden, hidden.bias), operations.feed_forward(normed, hidden, output, None)
    assert normed.data_ptr() not in {tensor.data_ptr() for tensor in kept}
    precision = 0.1 if kind == torch.bfloat16 else 1e-5
    for result, exact in zip(own, expected, strict=True):
        gradients, exact_gradients = (
            torch.autograd.grad(each.sum(), parameters, retain_graph=True) for each in (result, exact)
        )
        for value, right in zip((result, *gradients), (exact, *exact_gradients), strict=True):
            assert (value - right).norm() <= precision * right.norm()


@pytest.mark.parametrize(
    ("vendor", "has_mkl", "expected"),
    [("GenuineIntel", True, True), ("GenuineIntel", False, False), ("AuthenticAMD", True, False)],
)
def test_float32_is_left_to_mkl_on_processors_of_its_maker(
    vendor: str, has_mkl: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_processor", lambda: f"vendor_id : {vendor}")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: has_mkl)
    quick = native.pytorch_is_faster_in_float32.__wrapped__()
    assert quick == expected
    monkeypatch.setattr(calls, "pytorch_is_faster_in_float32", lambda: quick)
    monkeypatch.setattr(calls, "_compiled_products", lambda _: True)
    assert calls.multiplies(torch.ones(3, 16), 32) is not expected
    assert calls.multiplies(torch.ones(3, 16).bfloat16(), 32)


@needs_products
def test_a_layer_for_decoding_may_have_any_number_of_features() -> None:
    linear, x = torch.nn.Linear(32, 40), torch.randn(3, 32)
    assert_close(BFloat16Linear.of(linear)(x).float(), linear(x), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("vocabulary", [16, 35])
def test_cross_entropy(vocabulary: int) -> None:
    torch.manual_seed(6)
    logits = (5 * torch.randn(9, vocabulary)).requires_grad_()
    gold, weights = torch.randint(vocabulary, (9,)), torch.rand(9)
    probabilities = logits.double().log_softmax(1)
    nll = -probabilities.gather(1, gold[:, None])[:, 0]
    expected = (weights * (0.9 * nll - 0.1 * probabilities.mean(1))).sum()
    loss, own_nll = operations.cross_entropy(logits, gold, weights, 0.1)
    assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    assert_close(own_nll.double(), nll, rtol=1e-5, atol=1e-6)
    (gradient,), (wanted,) = (torch.autograd.grad(value * 3, logits) for value in (loss, expected))
    assert_close(gradient, wanted, rtol=1e-5, atol=1e-6)


@needs_kernels
def test_reduction() -> None:
    torch.manual_seed(7)
    x, scores = (tensor.requires_grad_() for tensor in torch.randn(2, 3, 6, 4, 32).unbind())
    lengths = torch.tensor([6, 1, 4])
    padding = torch.arange(6) >= lengths[:, None]
    expected = (scores.masked_fill(padding[:, :, None, None], -torch.inf).softmax(1) * x).sum(1)
    result = operations.reduction(x, scores, lengths)
    assert_close(result, expected, rtol=1e-5, atol=1e-6)
    gradient = torch.randn_like(expected)
    own, wanted = (torch.autograd.grad(value, (x, scores), gradient) for value in (result, expected))
    assert_close(own, wanted, rtol=1e-5, atol=1e-6)


@needs_kernels
@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("shapes", [[(2, 3, 1), (2, 1, 5)], [(2, 3, 5)], [(2, 7)]])
def test_mixture_of_a_lexical_shortcut(shapes: list[tuple[int, ...]], fusion: bool) -> None:
    torch.manual_seed(8)
    places = (2, 7) if len(shapes[0]) == 2 else (2, 3, 5)
    features = 64 if fusion else 32
    hidden, bias = torch.randn(*places, features, requires_grad=True), torch.randn(32, requires_grad=True)
    parts = [torch.randn(*shape, features, requires_grad=True) for shape in shapes]
    inputs = [hidden, bias, *parts]
    expected = _Mixture.apply(hidden, bias, fusion, *parts)
    results = operations.mixture(hidden, bias, fusion, parts, wants_gates=True)
    assert_close(results, expected, rtol=1e-5, atol=1e-6)
    gradient = torch.randn_like(expected[0])
    own, wanted = (torch.autograd.grad(value[0], inputs, gradient) for value in (results, expected))
    assert_close(own, wanted, rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("batch", "has_bias", "scale"), [(2, True, 3.0), (5, False, 3.0), (3, True, 0.003)])
def test_attention_to_the_norm_of_a_sum(batch: int, has_bias: bool, scale: float, threads: int) -> None:
    """The small scale has a variance of the order of the norm's epsilon, and 0 in one cell."""
    torch.manual_seed(9)
    norm = torch.nn.LayerNorm(32)
    attention = SelfAttention(32, 2, SharedDropout(0.0), axis=2, bias=has_bias)
    for parameter in (*norm.parameters(), *attention.parameters()):
        torch.nn.init.normal_(parameter, std=0.3)
    sides = [scale * (torch.randn(batch, length, 32) + 0.3) for length in (4, 7)]
    if scale < 1:
        sides[1][0, 2] = -sides[0][0, 1]
    for side in sides:
        side.requires_grad_()
    gradient = torch.randn(batch, 4, 7, 32)
    with number_of_threads(threads):
        update = attention.of_sum(*sides, norm, Sight.of_past(7, gradient))
        assert update is not None
        inputs = [*sides, *norm.parameters(), *attention.qkv.parameters()]
        own = torch.autograd.grad(update.value, inputs, gradient)
    norm64, attention64 = (copy.deepcopy(layer).double() for layer in (norm, attention))
    sides64 = [side.detach().double().requires_grad_() for side in sides]
    normed = norm64(sides64[0][:, :, None] + sides64[1][:, None])
    expected = attention64(normed, Sight.of_past(7, normed)).value
    inputs64 = [*sides64, *norm64.parameters(), *attention64.qkv.parameters()]
    wanted = torch.autograd.grad(expected, inputs64, gradient.double())
    result = update.value if update.bias is None else update.value + update.bias
    for value, exact in zip((result, *own), (expected, *wanted), strict=True):
        assert_close(value.double(), exact, rtol=1e-5, atol=1e-5 * exact.abs().max().item())


@needs_kernels
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_attention_to_the_norm_of_a_sum_drops_weights(kind: torch.dtype) -> None:
    torch.manual_seed(9)
    norm, attention = LayerNorm(32), SelfAttention(32, 2, SharedDropout(0.5, (1,)), axis=2)
    source, target = torch.randn(2, 4, 32).to(kind), torch.randn(2, 7, 32).to(kind)
    sight = Sight.of_past(7, source)
    updates = []
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
        for attend_to in (
            lambda: attention.of_sum(source, target, norm, sight),
            lambda: attention(norm(source[:, :, None] + target[:, None]), sight),
        ):
            torch.manual_seed(10)
            updates.append(attend_to().value)
    assert_close(*updates, **({} if kind == torch.float32 else {"rtol": 0.02, "atol": 0.02}))


@needs_kernels
def test_the_first_layer_projects_the_sides_of_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is S + T rows and the norm's bias, not S T cells; later layers read the grid."""
    rows: dict[int, list[tuple[int, ...]]] = {}
    project = operations.project

    def noting(x: torch.Tensor, linear: torch.nn.Module, bias: torch.Tensor | None = None) -> torch.Tensor:
        rows.setdefault(id(linear), []).append(tuple(x.shape))
        return project(x, linear, bias)

    monkeypatch.setattr(operations, "project", noting)
    model = build_model(MODELS["reformer-base"], VOCABULARY, VOCABULARY)
    model(torch.randint(4, VOCABULARY, (2, 5)), torch.randint(4, VOCABULARY, (2, 6)))
    first, second = (model.get_submodule(f"layers.{i}.target_attention.qkv") for i in range(2))
    assert rows[id(first)] == [(2, 11, 32), (1, 32)]
    assert rows[id(second)] == [(2, 5, 6, 32)]


@needs_kernels
def test_a_value_that_is_not_finite_stays_visible() -> None:
    x = torch.zeros(1, 2, 16)
    x[0, 0, 3] = torch.nan
    hidden, output = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
    with torch.no_grad():
        assert operations.feed_forward(x, hidden, output, None)[0].isnan().tolist() == [[True] * 16, [False] * 16]
        assert operations.residual_norm(x, None, None, None, torch.nn.LayerNorm(16))[1][0, 0].isnan().all()
        attended = operations.attention([x.repeat(1, 1, 3)], None, 1, 1, None, causal=True)
    assert attended[0, 0].isnan().any()
    assert operations.attention([x.bfloat16().repeat(1, 1, 3)], None, 1, 1, None, True)[0, 0].isnan().any()


@needs_products
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("kind", [BFloat16Linear.of, Int8Linear])
def test_layers_for_decoding_do_not_hide_a_value_that_is_not_finite(
    kind: Callable[[torch.nn.Linear], torch.nn.Module], value: float
) -> None:
    x = torch.ones(3, 16, dtype=torch.bfloat16)
    x[1, 3] = value
    layer = kind(torch.nn.Linear(16, 32))
    for result in (
        layer(x),
        operations.feed_forward(x, layer, kind(torch.nn.Linear(32, 16)), None),
    ):
        assert result.isfinite().all(dim=1).tolist() == [True, False, True]


@needs_kernels
@pytest.mark.parametrize("name", MODELS)
def test_translations_are_those_of_the_plain_path(name: str, without_kernels: pytest.MonkeyPatch) -> None:
    """With sentences of several lengths, which end at different positions, and a beam that reorders its rows."""
    torch.manual_seed(9)
    model = build_model(MODELS[name], VOCABULARY, VOCABULARY).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    source = torch.randint(4, VOCABULARY, (5, 18))
    source[1, 3:] = source[3, 17:] = source[4, 1:] = 0
    expected = beam_search(model, source, SearchConfig(beam_size=4), num_best=4)
    without_kernels.undo()
    found = beam_search(model, source, SearchConfig(beam_size=4), num_best=4)
    for own, plain in zip(found, expected, strict=True):
        assert [hypothesis.ids for hypothesis in own] == [hypothesis.ids for hypothesis in plain]
        scores = [[hypothesis.score for hypothesis in each] for each in (own, plain)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)


@needs_kernels
def test_noise_of_dropout() -> None:
    """Two values, in the right share, the same from the same seed and for any number of threads."""
    torch.manual_seed(5)
    noise = operations.dropout_noise((300, 1, 101), 0.3, torch.empty(0))
    assert noise.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (noise == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    torch.manual_seed(5)
    with number_of_threads(3):
        again = operations.dropout_noise((300, 1, 101), 0.3, torch.empty(0))
    assert torch.equal(noise, again)
    assert not torch.equal(noise, operations.dropout_noise((300, 1, 101), 0.3, torch.empty(0)))


def test_what_the_kernels_cannot_take_is_left_to_pytorch() -> None:
    assert not operations.usable(torch.empty(2, 24), 24)
    for kind in (torch.float64, torch.float16):
        assert not operations.usable(torch.empty(2, 32, dtype=kind))
    assert not operations.usable(torch.empty(2, 32, device="meta"))
    with FakeTensorMode():
        assert not operations.usable(torch.empty(2, 32))
    with torch.autocast("cpu", torch.bfloat16):  # what lies between it and matrix products would be of two types
        assert not operations.usable(torch.empty(2, 32))


@needs_kernels
def test_layers_take_float32_under_autocast() -> None:
    torch.manual_seed(9)
    layer, x = FeedForward(32, 48, SharedDropout(0.3, (1, 2))), torch.randn(2, 3, 5, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        result = layer(x).value
    result.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32


@needs_kernels
def test_weights_in_bfloat16() -> None:
    """Gradients have the parameters' type, and are those of float32 as far as bfloat16 can tell."""
    gradients = []
    for kind in (torch.float32, torch.bfloat16):
        torch.manual_seed(10)
        model = build_model(MODELS["reformer-fast-fusion"], VOCABULARY, VOCABULARY).to(kind)
        source, target = torch.randint(4, VOCABULARY, (2, 4, 19)).unbind()
        cross_entropy_sums(model(source, target), target, 0.1)[0].backward()
        assert all(parameter.grad.dtype == kind for parameter in model.parameters())
        gradients.append(torch.cat([parameter.grad.flatten().float() for parameter in model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() < 0.1 * gradients[0].norm()


@needs_kernels
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_pytorch_may_have_another_default_type(kind: torch.dtype) -> None:
    torch.manual_seed(11)
    model = build_model(MODELS["reformer-fast-fusion"], VOCABULARY, VOCABULARY)
    source, target = torch.randint(4, VOCABULARY, (2, 4, 19)).unbind()

    def gradients() -> list[torch.Tensor]:
        loss = cross_entropy_sums(model(source, target), target, 0.1)[0]
        return list(torch.autograd.grad(loss, list(model.parameters())))

    model.eval()
    expected = gradients()
    torch.set_default_dtype(kind)
    try:
        assert all(map(torch.equal, gradients(), expected))
    finally:
        torch.set_default_dtype(torch.float32)


@needs_kernels
def test_an_int8_layer_in_bfloat16() -> None:
    torch.manual_seed(13)
    linear, x = torch.nn.Linear(32, 64), torch.randn(5, 32)
    expected, layer = linear(x).detach(), Int8Linear(linear).bfloat16()
    assert_close(layer(x.bfloat16()).float(), expected, rtol=0.05, atol=0.05)


@needs_kernels
def test_decoding_reads_rows_where_they_lie() -> None:
    """A single row may have any distance to the next; rows at unequal distances are refused."""
    torch.manual_seed(14)
    kept, lengths = torch.randn(2, 3, 5, 64), torch.tensor([5, 2])
    query = torch.randn(2, 3, 1, 32)
    expected = operations.attend_to_slots(query, kept, 2, lengths=lengths)
    odd = query.as_strided(query.shape, (96, 32, 7, 1))
    assert torch.equal(operations.attend_to_slots(odd, kept, 2, lengths=lengths), expected)
    with pytest.raises(RuntimeError, match="view"):
        operations.attend_to_slots(torch.randn(3, 2, 1, 32).transpose(0, 1), kept, 2, lengths=lengths)


@needs_kernels
def test_noise_of_attention_may_be_shared_by_queries_or_keys() -> None:
    torch.manual_seed(12)
    projected = torch.randn(2, 5, 7, 48)
    for shape in ((2, 1, 1, 1, 7), (2, 1, 1, 7, 1)):
        noise = torch.rand(shape)
        whole = noise.expand(2, 5, 1, 7, 7).contiguous()
        own, wanted = (operations.attention([projected], None, 1, 2, None, False, each) for each in (noise, whole))
        assert torch.equal(own, wanted)


@needs_kernels
def test_an_empty_batch() -> None:
    x, norm, linear = torch.empty(0, 2, 3, 16, requires_grad=True), torch.nn.LayerNorm(16), torch.nn.Linear(16, 16)
    _, normed = operations.residual_norm(x, None, None, None, norm)
    assert normed is not None
    operations.feed_forward(normed, linear, linear, None).sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


NO_MEMORY_LEFT = """
import resource, torch
from jointnmt.ops.native import operations
torch.set_num_threads(2)
x, linear = torch.zeros(1, 5000, 48, dtype=torch.bfloat16), torch.zeros(6400, 6400, dtype=torch.bfloat16)
rows = torch.zeros(600, 6400, dtype=torch.bfloat16)
operations.attention([x[:, :16].contiguous()], None, 1, 1, None, True)  # the library is loaded, the threads are there
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**26, -1))
for run in (
    lambda: operations.attention([x], None, 1, 1, None, True),  # each thread's own memory
    lambda: operations.multiply(rows, linear),  # the packed weights
    lambda: torch.zeros(2**30),
):
    try:
        run()
    except (MemoryError, RuntimeError) as error:
        print(type(error).__name__)
"""


@needs_products
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of memory as Linux has them")
def test_a_kernel_that_finds_no_memory_raises_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_MEMORY_LEFT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.split(), done.returncode) == (["MemoryError", "MemoryError", "RuntimeError"], 0), done.stderr


@needs_kernels
@pytest.mark.parametrize("token", [-1, 35])
def test_gold_tokens_outside_of_the_vocabulary_are_an_error(token: int) -> None:
    with pytest.raises(IndexError, match="vocabulary of 35"):
        operations.cross_entropy(torch.randn(2, 35), torch.tensor([3, token]), torch.ones(2), 0.1)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A machine that has compiled nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JOINTNMT_NATIVE", raising=False)
    native.library.cache_clear()
    yield monkeypatch
    native.library.cache_clear()


@pytest.mark.slow
@needs_kernels
def test_the_library_is_compiled_once(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert native.library() is not None
    (built,) = (tmp_path / "jointnmt").iterdir()
    time = built.stat().st_mtime_ns
    native.library.cache_clear()
    assert native.library() is not None
    assert [path.stat().st_mtime_ns for path in (tmp_path / "jointnmt").iterdir()] == [time]


@pytest.mark.slow
@needs_kernels
def test_a_spoiled_library_is_compiled_again(fresh: pytest.MonkeyPatch) -> None:
    built = native._compiled()
    size = built.stat().st_size
    built.write_bytes(built.read_bytes()[:100])
    assert native.library() is not None
    assert built.stat().st_size == size


@pytest.mark.parametrize("trouble", ["no compiler", "a compiler that fails", "nowhere to write", "no home"])
def test_without_kernels_there_is_a_warning_and_no_more(
    trouble: str, fresh: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if trouble == "no compiler":
        fresh.setenv("PATH", "")
    elif trouble == "a compiler that fails":
        broken = tmp_path / "c++"
        broken.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nprintf "out of \\377order" >&2; exit 1\n')
        broken.chmod(0o755)
        fresh.setenv("CXX", str(broken))
    elif trouble == "no home":
        fresh.delenv("XDG_CACHE_HOME")
        fresh.delenv("HOME", raising=False)
        fresh.setattr("os.path.expanduser", lambda path: path)  # as of a user that the system does not know
    else:
        (tmp_path / "file").touch()
        fresh.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert native.library() is None
    assert "Install a C++ compiler" in caplog.text
    assert not operations.usable(torch.empty(2, 32))


def test_kernels_can_be_turned_off(fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fresh.setenv("JOINTNMT_NATIVE", "0")
    assert native.library() is None
    assert not caplog.text


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernels", [False, pytest.param(True, marks=needs_kernels)])
def test_int8_layers_are_linear_layers_but_for_rounding(
    kernels: bool, kind: torch.dtype, without_kernels: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(11)
    linear, x = torch.nn.Linear(64, 48), torch.randn(3, 20, 64)
    torch.nn.init.normal_(linear.bias)
    x[0, 0] = 0
    expected = linear(x).detach()
    if kernels:
        without_kernels.undo()
    layer = Int8Linear(linear)
    assert layer.weight.abs().max() == 127
    result = layer(x.to(kind))
    assert result.dtype == kind
    assert_close(result[0, 0].float(), linear.bias, rtol=1e-2, atol=1e-2)
    assert (result - expected).norm() < 0.015 * expected.norm()
    without_bias = operations.project(x.to(kind), layer)
    assert_close((without_bias + linear.bias).float(), result.float(), rtol=1e-2, atol=2e-2)


@needs_kernels
@pytest.mark.skipif(not has_int8_products(), reason="needs a processor with AVX512-VNNI")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 6, 97])
@pytest.mark.parametrize("sizes", PRODUCT_SIZES)
def test_products_of_integers_are_exact(sizes: tuple[int, int], rows: int, threads: int) -> None:
    """As the same integers in float64: rows and weights that are integers already, the largest of them 127."""
    torch.manual_seed(17)
    layers = torch.nn.Linear(*sizes), torch.nn.Linear(*reversed(sizes))
    for layer in layers:
        torch.nn.init.uniform_(layer.weight, -127, 127).data.round_()[:, 0] = 127
        torch.nn.init.normal_(layer.bias)
    x = torch.randint(-127, 128, (rows, sizes[0])).float()
    x[:, 1] = -127
    expected = x.double() @ layers[0].weight.double().t() + layers[0].bias.double()
    hidden = expected.relu()
    scales = hidden.amax(dim=1, keepdim=True).clamp(min=1) / 127
    expected_block = (hidden / scales).round() * scales @ layers[1].weight.double().t()
    first, second = map(Int8Linear, layers)
    with number_of_threads(threads):
        own, own_block = first(x), operations.feed_forward(x, first, second, None)
    assert_close(own.double(), expected, rtol=1e-5, atol=1e-2)
    assert (own_block - expected_block).norm() < 1e-3 * expected_block.norm()  # what lies between two integers


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_models_for_decoding_translate_nearly_alike(name: str, precision: Literal["bfloat16", "int8"]) -> None:
    torch.manual_seed(12)
    model = build_model(MODELS[name], VOCABULARY, VOCABULARY - 3).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    source, target = torch.randint(4, VOCABULARY - 3, (2, 3, 7)).unbind()
    own_model = for_decoding(model, precision)
    with torch.no_grad():
        expected = model(source, target).log_softmax(-1)
        with torch.autocast("cpu", torch.bfloat16):
            own = own_model(source, target).float().log_softmax(-1)
    assert own.shape == expected.shape
    assert (own - expected).abs().mean() < 0.03
    assert not torch.equal(own, expected)
    tables = (own_model.source_embedding.weight, model.source_embedding.weight)
    assert tables[0] is tables[1]  # not copied
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [5, 96, 1003])
def test_log_softmax(width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(19)
    logits = torch.randn(2, 7, width).mul(30).to(dtype)
    logits[0, 0, 1:] = -torch.inf
    found = operations.log_softmax(logits)
    assert found.dtype == torch.float32 and found[0, 0, 0] == 0
    torch.testing.assert_close(found, logits.double().log_softmax(-1).float(), rtol=1e-6, atol=2e-5)
    assert torch.equal(operations.log_softmax(logits.transpose(0, 1)), found.transpose(0, 1))
    logits[1, 3, width // 2] = torch.nan
    rows = operations.log_softmax(logits).isnan()
    assert rows[1, 3].all() and rows.sum() == width


@needs_kernels
@pytest.mark.parametrize("count", [1, 10, 70])
@pytest.mark.parametrize("width", [70, 96, 1003])
def test_greatest_values(width: int, count: int) -> None:
    """Of equal values the first, whatever their number; and nothing that is not a number goes unnoticed."""
    torch.manual_seed(18)
    values = torch.randn(7, width).mul(4).round().div(4)
    values[0], values[1, 5:] = 0, -torch.inf
    best, places, strange = operations.greatest(values, count)
    ordered = values.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(best, ordered.values[:, :count]) and torch.equal(places, ordered.indices[:, :count])
    assert not strange
    for place in (0, width // 2, width - 1):
        damaged = values.clone()
        damaged[4, place] = torch.nan
        assert operations.greatest(damaged, count)[2]
