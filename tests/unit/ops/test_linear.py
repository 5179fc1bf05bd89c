"""Linear layers and feed-forward blocks: values and gradients, by both kinds of matrix products."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.layers.linear import Linear
from jointnmt.ops import linear, linear_update, mlp_update
from jointnmt.ops.backend import uses_own_gemm
from jointnmt.ops.linear import BLOCK_ROWS, MANY_ROWS
from support.kernels import GEMM_SIZES, exact_and_rounded, needs_kernels, number_of_threads

NO_DROPOUT = SharedDropout(0.0)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 6, 97, 509])
@pytest.mark.parametrize("sizes", GEMM_SIZES)
def test_linear(sizes: tuple[int, int], rows: int, threads: int, kind: torch.dtype) -> None:
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
        own = linear(*parameters)
        own_gradients = torch.autograd.grad(own, parameters, gradient)
    assert_close(own.double(), expected, rtol=precision, atol=1e-4)
    assert_close(own_gradients[0].double(), expected_gradients[0], rtol=precision, atol=1e-4)
    for own_gradient, expected_gradient in zip(own_gradients[1:], expected_gradients[1:], strict=True):
        assert_close(own_gradient.double(), expected_gradient, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("axes", [None, (1, 2), (1,), ()])
@pytest.mark.parametrize("sizes", GEMM_SIZES)
def test_mlp(sizes: tuple[int, int], axes: tuple[int, ...] | None, threads: int, kind: torch.dtype) -> None:
    torch.manual_seed(15)
    embed_dim, ffn_dim = sizes
    x64, x = exact_and_rounded(kind, 2, 5, 51, embed_dim)
    layers64 = [torch.nn.Linear(*shape).double() for shape in (sizes, sizes[::-1])]
    layers = [torch.nn.Linear(*shape) for shape in (sizes, sizes[::-1])]
    for layer, layer64 in zip(layers, layers64, strict=True):
        for parameter, parameter64 in zip(layer.parameters(), layer64.parameters(), strict=True):
            parameter.data = torch.randn_like(parameter).bfloat16().float()
            parameter64.data = parameter.data.double()
    dropout = NO_DROPOUT if axes is None else SharedDropout(0.5, axes)
    gradient = torch.randn(x.shape).bfloat16().to(kind)
    parameters, parameters64 = ([*layer[0].parameters(), *layer[1].parameters()] for layer in (layers, layers64))
    with number_of_threads(threads):
        torch.manual_seed(16)
        own = mlp_update(x, *layers, dropout).total
        own_gradients = torch.autograd.grad(own, [x, *parameters], gradient)
        torch.manual_seed(16)
        mask = dropout.mask((2, 5, 51, ffn_dim), x)
    hidden = layers64[0](x64).relu()
    expected = layers64[1](hidden if mask is None else hidden * mask.double())
    expected_gradients = torch.autograd.grad(expected, [x64, *parameters64], gradient.double())
    for value, exact in zip((own, *own_gradients), (expected, *expected_gradients), strict=True):
        error = (value - exact).norm() / exact.norm()  # hidden states and their gradients are rounded on the way
        assert error < (0.01 if kind == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("sizes", GEMM_SIZES)
def test_without_gradient_the_products_are_the_same(sizes: tuple[int, int], kind: torch.dtype) -> None:
    torch.manual_seed(16)
    hidden, output = torch.nn.Linear(*sizes), torch.nn.Linear(*reversed(sizes))
    for layer in (hidden, output):
        layer.to(kind)
    x = torch.randn(2, 5, 51, sizes[0]).to(kind)
    assert x[..., 0].numel() >= MANY_ROWS
    results = []
    for gradient in (True, False):
        with torch.set_grad_enabled(gradient):
            results.append((linear(x, hidden.weight, hidden.bias), mlp_update(x, hidden, output, NO_DROPOUT).total))
    assert_close(*results, rtol=0 if kind == torch.bfloat16 else 1e-5, atol=0 if kind == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("gradient", [True, False])
def test_an_update_with_its_bias_is_the_layer(gradient: bool, kind: torch.dtype) -> None:
    """The bias is left to the caller with PyTorch's products, and added by the custom ones."""
    torch.manual_seed(18)
    hidden, output, x = Linear(32, 48), Linear(48, 32), torch.randn(2, 5, 51, 32).to(kind)
    with torch.set_grad_enabled(gradient):
        update, block = linear_update(x, hidden), mlp_update(x, hidden, output, NO_DROPOUT)
        by_pytorch = not uses_own_gemm(x, 32, 48)
        assert (update.bias is hidden.bias, block.bias is output.bias) == (by_pytorch, by_pytorch)
        assert by_pytorch or (update.bias is None and block.bias is None)
        expected = linear(x, hidden.weight, hidden.bias), mlp_update(x, hidden, output, NO_DROPOUT).total
    assert_close((update.total, block.total), expected)


@needs_kernels
def test_gradients_of_weights_are_summed_in_blocks(kind: torch.dtype) -> None:
    """A single sum over many rows would lose digits."""
    torch.manual_seed(17)
    (x64, x), (gradient64, gradient) = (exact_and_rounded(kind, 1, 50_000, 32) for _ in range(2))
    assert x[..., 0].numel() > 2 * BLOCK_ROWS
    weight, bias = torch.randn(32, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    own = torch.autograd.grad(linear(x, weight, bias), (weight, bias), gradient)
    expected = gradient64[0].t() @ x64[0], gradient64[0].sum(0)
    for value, exact in zip(own, expected, strict=True):
        assert (value - exact).norm() <= 1e-6 * exact.norm()


@needs_kernels
def test_layers_take_float32_under_autocast() -> None:
    torch.manual_seed(9)
    layer, x = FeedForward(32, 48, SharedDropout(0.3, (1, 2))), torch.randn(2, 3, 5, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        result = layer(x).total
    result.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32


@pytest.mark.parametrize("places", [(60,), (2, 3, 2, 5)])
def test_dropout_of_a_hidden_layer_falls_on_any_number_of_axes(places: tuple[int, ...]) -> None:
    torch.manual_seed(19)
    block = FeedForward(16, 16, SharedDropout(0.5))
    for layer in (block.hidden, block.output):
        torch.nn.init.eye_(layer.weight)
    kept = block(torch.ones(*places, 16)).total.flatten(0, -2) != 0
    assert not (kept == kept[:1]).all(0).any()


@pytest.mark.usefixtures("unchecked_shapes")
def test_sizes_that_do_not_fit_are_an_error(kind: torch.dtype) -> None:
    """Errors are those of PyTorch; kernels would read memory behind the tensors."""
    x, weight = torch.ones(3, 64, dtype=kind), torch.ones(48, 32, dtype=kind)
    with pytest.raises(RuntimeError):
        linear(x, weight)
    with pytest.raises(RuntimeError):
        linear(x[:, :32], weight, torch.ones(16, dtype=kind))
    for sizes in ((32, 48, 64), (64, 48, 32, 64)):
        hidden, output = torch.nn.Linear(*sizes[:2]).to(kind), torch.nn.Linear(*sizes[-2:]).to(kind)
        with pytest.raises(RuntimeError):
            mlp_update(x, hidden, output, NO_DROPOUT)


def test_a_block_may_lead_to_another_number_of_features(kind: torch.dtype) -> None:
    hidden, output, x = Linear(32, 48), Linear(48, 16), torch.ones(2, 3, 32, dtype=kind)
    assert mlp_update(x, hidden, output, NO_DROPOUT).total.shape == (2, 3, 16)


@pytest.mark.parametrize("biases", [(True, False), (False, True), (False, False)])
def test_layers_of_a_block_may_have_no_bias(biases: tuple[bool, bool], kind: torch.dtype) -> None:
    torch.manual_seed(20)
    hidden, output = (
        torch.nn.Linear(*sizes, bias=bias) for sizes, bias in zip(((32, 48), (48, 32)), biases, strict=True)
    )
    for layer in (hidden, output):
        layer.to(kind)
    x, parameters = torch.randn(2, 3, 32).to(kind), [*hidden.parameters(), *output.parameters()]
    own, expected = mlp_update(x, hidden, output, NO_DROPOUT).total, output(hidden(x).relu())
    precision = 0.05 if kind == torch.bfloat16 else 1e-5
    assert_close(own, expected, rtol=precision, atol=precision)
    gradients = (torch.autograd.grad(each.sum(), parameters) for each in (own, expected))
    assert_close(*gradients, rtol=precision, atol=precision * 20)
    with torch.no_grad():
        assert_close(mlp_update(x, hidden, output, NO_DROPOUT).total, expected, rtol=precision, atol=precision)


def test_a_single_vector(kind: torch.dtype) -> None:
    torch.manual_seed(21)
    x, weight, bias = (torch.randn(shape).to(kind).requires_grad_() for shape in ((32,), (48, 32), (48,)))
    results = []
    for places in ((), (1,)):
        total = linear(x.view(*places, 32), weight, bias).view(48)
        results.append((total, *torch.autograd.grad(total.sum(), (x, weight, bias))))
    assert_close(*results)
