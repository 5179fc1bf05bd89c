"""Loss, log-probabilities and the best of them, by either implementation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from jointnmt.ops import backend, cross_entropy, divergence, log_softmax, topk
from support.kernels import needs_kernels


@pytest.fixture(params=["native", "plain"], autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    with backend(request.param):
        yield request.param


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocabulary", [16, 35])
def test_cross_entropy(vocabulary: int, smoothing: float) -> None:
    torch.manual_seed(6)
    logits = (5 * torch.randn(9, vocabulary)).requires_grad_()
    gold, weights = torch.randint(vocabulary, (9,)), torch.rand(9)
    probabilities = logits.double().log_softmax(1)
    nll = -probabilities.gather(1, gold[:, None])[:, 0]
    expected = (weights * ((1 - smoothing) * nll - smoothing * probabilities.mean(1))).sum()
    loss, own_nll = cross_entropy(logits, gold, weights, smoothing)
    assert not own_nll.requires_grad
    assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    assert_close(own_nll.double(), nll, rtol=1e-5, atol=1e-6)
    (gradient,), (wanted,) = (torch.autograd.grad(value * 3, logits) for value in (loss, expected))
    assert_close(gradient, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [5, 16, 35, 1003])
def test_divergence(vocabulary: int, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    logits = [(5 * torch.randn(9, vocabulary)).to(dtype).requires_grad_() for _ in range(2)]
    with torch.no_grad():
        logits[1][3] = logits[0][3]  # predictions that agree
        logits[1][4] = logits[0][4] + 0.01 * torch.randn(vocabulary)  # nearly
    weights = torch.rand(9)
    weights[5] = 0
    p, q = (each.double().log_softmax(1) for each in logits)
    apart = (p.exp() * (p - q) + q.exp() * (q - p)).sum(1) / 2
    total = divergence(*logits, weights)
    assert total.dtype == torch.float32
    assert_close(total.double(), (weights * apart).sum(), rtol=1e-5, atol=1e-6)
    wanted = torch.autograd.grad(3 * (weights * apart).sum(), logits)
    tolerances = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 1e-4}
    for found, expected in zip(torch.autograd.grad(3 * total, logits), wanted, strict=True):
        assert found.dtype == dtype
        assert_close(found, expected, **tolerances)
        assert not found[5].any()


@pytest.mark.parametrize("weights", [torch.ones(1).expand(9), torch.ones(18)[::2]], ids=["expanded", "strided"])
def test_weights_of_a_divergence_may_lie_apart(weights: Tensor) -> None:
    torch.manual_seed(7)
    first, second = torch.randn(2, 9, 35).unbind()
    assert_close(divergence(first, second, weights), divergence(first, second, torch.ones(9)))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("second", "weights"),
    [((9, 24), torch.ones(9)), ((9, 35), torch.ones(3)), ((9, 35), torch.ones(9, dtype=torch.float64))],
)
def test_predictions_and_weights_that_do_not_fit_are_an_error(second: tuple[int, int], weights: Tensor) -> None:
    """Kernels must not read beyond their end."""
    with pytest.raises(RuntimeError):
        divergence(torch.randn(9, 35), torch.randn(second), weights)


@pytest.mark.parametrize("token", [-100, -1, 35])
def test_gold_tokens_outside_of_the_vocabulary_are_an_error(token: int) -> None:
    with pytest.raises(IndexError):
        cross_entropy(torch.randn(2, 35), torch.tensor([3, token]), torch.ones(2), 0.1)


@needs_kernels
@pytest.mark.parametrize("place", [0, 40])
def test_a_nearly_certain_token_is_less_than_certain(place: int) -> None:
    """Its log-probability is small beside the rounding errors of its logit."""
    logits = torch.full((1, 41), 70.0)
    logits[0, place] = 80
    assert_close(log_softmax(logits)[0, place].double(), logits.double().log_softmax(1)[0, place], rtol=1e-4, atol=0)


@needs_kernels
def test_numbers_beside_a_vector_are_rounded_like_those_in_it() -> None:
    """Rounding to bfloat16, with 15 columns and with 16, the last of which is impossible; a NaN stays one."""
    torch.manual_seed(9)
    logits, gold, weights = 3 * torch.randn(64, 15), torch.randint(15, (64,)), torch.ones(64)
    logits[5, 3] = torch.nan
    found = []
    for each in (logits, torch.nn.functional.pad(logits, (0, 1), value=-1e4)):
        leaf = each.bfloat16().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(leaf, gold, weights, 0.0)[0], leaf)
        found.append(gradient[:, :15])
    assert torch.equal(found[0].isnan(), found[1].isnan()) and found[0][5].isnan().all()
    assert torch.equal(found[0].nan_to_num(), found[1].nan_to_num())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [5, 96, 1003])
def test_log_softmax(width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(19)
    logits = torch.randn(2, 7, width).mul(30).to(dtype)
    logits[0, 0, 1:] = -torch.inf
    found = log_softmax(logits)
    assert found.dtype == torch.float32 and found[0, 0, 0] == 0
    assert_close(found, logits.double().log_softmax(-1).float(), rtol=1e-6, atol=2e-5)
    assert_close(log_softmax(logits.transpose(0, 1)), found.transpose(0, 1), rtol=0, atol=1e-5)
    logits[1, 3, width // 2] = torch.nan
    rows = log_softmax(logits).isnan()
    assert rows[1, 3].all() and rows.sum() == width


@needs_kernels
@pytest.mark.parametrize("count", [1, 10, 70])
@pytest.mark.parametrize("width", [70, 96, 1003])
def test_topk(width: int, count: int) -> None:
    """The first of any number of equal values wins; and every NaN is noticed."""
    torch.manual_seed(18)
    values = torch.randn(7, width).mul(4).round().div(4)
    values[0], values[1, 5:] = 0, -torch.inf
    best, places, has_nan = topk(values, count)
    ordered = values.sort(dim=-1, descending=True, stable=True)
    finite = best > -torch.inf  # impossible tokens may be in any order
    assert torch.equal(best, ordered.values[:, :count])
    assert torch.equal(places[finite], ordered.indices[:, :count][finite])
    assert not has_nan
    for place in (0, width // 2, width - 1):
        damaged = values.clone()
        damaged[4, place] = torch.nan
        assert topk(damaged, count).has_nan


def test_a_logit_of_minus_infinity_costs_nothing_without_smoothing() -> None:
    torch.manual_seed(20)
    logits = torch.randn(2, 35)
    logits[0, [3, 34]] = -torch.inf
    logits.requires_grad_()
    loss, _ = cross_entropy(logits, torch.tensor([1, 2]), torch.ones(2), 0.0)
    assert_close(loss, -logits.log_softmax(1)[[0, 1], [1, 2]].sum())
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("gold", "weights"), [(2, 2), (9, 2), (2, 9)])
def test_every_row_has_a_gold_token_and_a_weight(gold: int, weights: int) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        cross_entropy(torch.randn(9, 35), torch.arange(gold), torch.ones(weights), 0.1)


def test_no_logits_and_no_values() -> None:
    assert log_softmax(torch.empty(3, 0)).shape == (3, 0)
    values = torch.randn(3, 20)
    for none in (topk(values, 0), topk(values[:, :0], 5)):
        assert none.values.shape == none.indices.shape == (3, 0) and not none.has_nan
    assert topk(values[:0], 5).values.shape == (0, 5)
    values[1, 7] = torch.nan
    assert topk(values, 0).has_nan
