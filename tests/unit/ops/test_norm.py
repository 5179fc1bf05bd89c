"""Layer norm and the residual connection, against PyTorch: values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.ops import Biased, Normed, add_norm, backend, dropout_add, layer_norm, linear, mlp_update, normed
from support.kernels import exact_and_rounded, needs_kernels, number_of_threads

NO_DROPOUT = SharedDropout(0.0)


def norm_of(width: int) -> torch.nn.LayerNorm:
    norm = torch.nn.LayerNorm(width)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    return norm


@needs_kernels
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("axes", [None, (1,), (2,), (1, 2), ()])
def test_add_norm(axes: tuple[int, ...] | None, threads: int) -> None:
    torch.manual_seed(4)
    x, update = (each.requires_grad_() for each in torch.randn(2, 2, 3, 5, 32).unbind())
    norm, dropout = norm_of(32), NO_DROPOUT if axes is None else SharedDropout(0.4, axes)
    with number_of_threads(threads):
        torch.manual_seed(5)
        mask = dropout.mask(update.shape, update)
        torch.manual_seed(5)
        total, y = add_norm(x, update, dropout, norm)
        torch.manual_seed(5)
        assert_close(dropout_add(x, update, dropout), total)
        inputs = [x, update, *norm.parameters()]
        gradients = tuple(torch.randn(2, *x.shape))
        own = torch.autograd.grad((total, y.value), inputs, gradients)
    expected = x + (1 if mask is None else mask) * update
    wanted = (expected, norm(expected))
    assert_close((total, y.value), wanted, rtol=1e-5, atol=1e-5)
    assert_close(own, torch.autograd.grad(wanted, inputs, gradients), rtol=1e-5, atol=1e-5)


@needs_kernels
def test_a_norm_hands_its_input_on() -> None:
    """The gradients of both are summed."""
    torch.manual_seed(5)
    x, norm = torch.randn(2, 3, 32, requires_grad=True), norm_of(32)
    results = []
    for name in ("native", "plain"):
        with backend(name):  # type: ignore[arg-type]
            again, y = normed(x, norm)
            assert torch.equal(again, x)
            results.append(torch.autograd.grad((again.square() * y.value.sin()).sum(), [x, *norm.parameters()]))
    assert_close(*results, rtol=1e-5, atol=1e-5)


@needs_kernels
def test_dropout_add() -> None:
    torch.manual_seed(5)
    x, update = (each.requires_grad_() for each in torch.randn(2, 2, 3, 5, 32).unbind())
    for dropout in (NO_DROPOUT, SharedDropout(0.4, (1,)), SharedDropout(0.4)):
        torch.manual_seed(6)
        mask = dropout.mask(update.shape, update)
        torch.manual_seed(6)
        total = dropout_add(x, update, dropout)
        expected = x + (update if mask is None else update * mask)
        assert_close(total, expected)
        gradient = torch.randn_like(total)
        own, wanted = (torch.autograd.grad(each, (x, update), gradient) for each in (total, expected))
        assert_close(own, wanted)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("axes", [None, (1,), (1, 2), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["native", "plain"])
def test_the_bias_of_an_update(name: str, dtype: torch.dtype, axes: tuple[int, ...] | None, threads: int) -> None:
    """It is dropped with the product that it belongs to; its gradient is a sum in float32."""
    torch.manual_seed(7)
    (x64, x), (update64, update) = (exact_and_rounded(dtype, 2, 3, 5, 32) for _ in range(2))
    norm, norm64 = norm_of(32), torch.nn.LayerNorm(32).double()
    norm64.load_state_dict(norm.state_dict())
    bias = torch.randn(32, requires_grad=True)
    bias64 = bias.detach().double().requires_grad_()
    dropout = NO_DROPOUT if axes is None else SharedDropout(0.5, axes)  # factors of 0 and 2
    gradients = [torch.randn(x.shape).to(dtype) for _ in range(2)]
    with backend(name), number_of_threads(threads):  # type: ignore[arg-type]
        torch.manual_seed(8)
        added = dropout_add(x, Biased(update, bias), dropout)
        torch.manual_seed(8)
        total, y = add_norm(x, Biased(update, bias), dropout, norm)
        torch.manual_seed(8)
        with torch.no_grad():
            without = add_norm(x, Biased(update, bias), dropout, norm)
        sum_gradients = torch.autograd.grad(added, [x, update, bias], gradients[0])
        of_both = torch.autograd.grad((total, y.value), [x, update, bias, *norm.parameters()], gradients)
        torch.manual_seed(8)
        mask = dropout.mask(update.shape, update)
    assert torch.equal(added, total) and torch.equal(without[0], total) and torch.equal(without[1].value, y.value)
    expected = x64 + (1 if mask is None else mask.double()) * (update64 + bias64)
    wanted = (expected, norm64(expected))
    gradients64 = [each.double() for each in gradients]
    expected_sum = torch.autograd.grad(expected, [x64, update64, bias64], gradients64[0], retain_graph=True)
    expected_both = torch.autograd.grad(wanted, [x64, update64, bias64, *norm64.parameters()], gradients64)
    own = total, y.value, *sum_gradients, *of_both
    for value, exact in zip(own, (*wanted, *expected_sum, *expected_both), strict=True):
        assert (value - exact).norm() <= (0.02 if dtype == torch.bfloat16 else 1e-6) * exact.norm()
    if name == "native":
        assert_close(sum_gradients[2].double(), expected_sum[2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["native", "plain"])
def test_without_dropout_and_gradient(name: str) -> None:
    x, update = torch.randn(2, 2, 3, 32).unbind()
    norm = norm_of(32)
    with backend(name), torch.no_grad():  # type: ignore[arg-type]
        total, y = add_norm(x, update, NO_DROPOUT, norm)
        assert torch.equal(total, x + update)
        assert torch.equal(dropout_add(x, update, NO_DROPOUT), total)
        assert_close(y.value, norm(x + update))
        assert_close(layer_norm(x, norm), norm(x))


@pytest.mark.parametrize("kind", ["float32", "float32 by PyTorch", "bfloat16", "bfloat16 by PyTorch"], indirect=True)
def test_products_of_a_norm_keep_what_it_is_of(kind: torch.dtype) -> None:
    """The norm is computed again in the backward pass, also if its input is not contiguous."""
    torch.manual_seed(18)
    x = (2 + 3 * torch.randn(3, 2, 32, 7).transpose(2, 3)).to(kind)
    norm, hidden, output = norm_of(32), torch.nn.Linear(32, 48), torch.nn.Linear(48, 32)
    parameters = [*norm.parameters(), hidden.weight]
    wanted = norm(x.float())
    expected = hidden(wanted), output(hidden(wanted).relu())
    _, y = normed(x, norm)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        own = linear(y, hidden.weight, hidden.bias), mlp_update(y, hidden, output, NO_DROPOUT).total
    assert y.value.data_ptr() not in {tensor.data_ptr() for tensor in kept}
    precision = 0.1 if kind == torch.bfloat16 else 1e-5
    for result, exact in zip(own, expected, strict=True):
        gradients, exact_gradients = (
            torch.autograd.grad(each.sum(), parameters, retain_graph=True) for each in (result, exact)
        )
        for value, right in zip((result, *gradients), (exact, *exact_gradients), strict=True):
            assert (value - right).norm() <= precision * right.norm()


@needs_kernels
def test_an_empty_batch() -> None:
    x, norm, layer = torch.empty(0, 2, 3, 16, requires_grad=True), torch.nn.LayerNorm(16), torch.nn.Linear(16, 16)
    mlp_update(normed(x, norm)[1], layer, layer, NO_DROPOUT).total.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


@needs_kernels
def test_a_value_that_is_not_finite_stays_visible() -> None:
    x = torch.zeros(1, 2, 16)
    x[0, 0, 3] = torch.nan
    assert layer_norm(x, torch.nn.LayerNorm(16))[0, 0].isnan().all()
    with torch.no_grad():
        result = mlp_update(Normed(x), torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), NO_DROPOUT).total
    assert result[0].isnan().tolist() == [[True] * 16, [False] * 16]


@needs_kernels
def test_an_update_in_another_type_is_converted() -> None:
    torch.manual_seed(7)
    x, update, norm = torch.randn(2, 3, 32), torch.randn(2, 3, 32).bfloat16(), norm_of(32)
    expected = x + update
    assert_close(dropout_add(x, update, NO_DROPOUT), expected, rtol=0, atol=0)
    total, y = add_norm(x, update, NO_DROPOUT, norm)
    assert_close((total, y.value), (expected, norm(expected)), rtol=1e-5, atol=1e-5)


@needs_kernels
def test_a_norm_may_have_an_epsilon_of_its_own() -> None:
    torch.manual_seed(7)
    x, norm = torch.randn(2, 3, 32), torch.nn.LayerNorm(32, eps=1.0)
    assert_close(layer_norm(x, norm), norm(x), rtol=1e-5, atol=1e-5)
    assert_close(add_norm(x, x, NO_DROPOUT, norm)[1].value, norm(2 * x), rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("places", [(64,), (2, 3, 2, 5)])
def test_dropout_falls_on_any_number_of_axes(places: tuple[int, ...]) -> None:
    """Each number is dropped by itself, as in the plain form."""
    torch.manual_seed(9)
    x, dropout, norm = torch.zeros(*places, 32), SharedDropout(0.5), norm_of(32)
    for total in (dropout_add(x, x + 1, dropout), add_norm(x, x + 1, dropout, norm)[0]):
        kept = (total != 0).flatten(0, -2)
        assert total.unique().tolist() == [0, 2] and not (kept == kept[:1]).all(0).any()
    with torch.no_grad():
        assert_close(layer_norm(x + 1, norm), norm(x + 1))


@needs_kernels
@pytest.mark.parametrize(
    "norm",
    [
        torch.nn.LayerNorm(32, bias=False),
        torch.nn.LayerNorm(32, elementwise_affine=False),
        torch.nn.LayerNorm((3, 32)),
    ],
)
def test_norms_that_the_kernel_does_not_compute(norm: torch.nn.LayerNorm) -> None:
    """Norms without bias or weight, or over several axes."""
    torch.manual_seed(10)
    x = torch.randn(2, 3, 32)
    assert_close(layer_norm(x, norm), norm(x))
    assert_close(add_norm(x, x, NO_DROPOUT, norm)[1].value, norm(2 * x))


@needs_kernels
def test_a_norm_of_other_features_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="normalized_shape"):
        layer_norm(torch.ones(2, 3, 64), torch.nn.LayerNorm(32))


@needs_kernels
def test_an_update_is_broadcast() -> None:
    torch.manual_seed(11)
    x, update, norm = torch.randn(2, 3, 32), torch.randn(3, 32), norm_of(32)
    assert_close(dropout_add(x, update, NO_DROPOUT), x + update)
    assert_close(add_norm(x, update, NO_DROPOUT, norm)[1].value, norm(x + update), rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="must match"):
        dropout_add(x, update[:2], NO_DROPOUT)


@needs_kernels
@pytest.mark.usefixtures("unchecked_shapes")
def test_a_bias_of_other_features_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        add_norm(torch.randn(2, 3, 32), Biased(torch.randn(2, 3, 32), torch.randn(8)), NO_DROPOUT, norm_of(32))


@needs_kernels
def test_the_norm_is_that_of_the_stored_sum() -> None:
    """The sum is rounded in bfloat16, and the backward pass recomputes the norm from it."""
    torch.manual_seed(7)
    x, update = torch.randn(2, 5, 64).bfloat16(), torch.randn(2, 5, 64).bfloat16()
    norm = norm_of(64)
    total, found = add_norm(x, update, NO_DROPOUT, norm)
    assert torch.equal(found.value, layer_norm(total, norm))
