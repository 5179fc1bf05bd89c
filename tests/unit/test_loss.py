"""The training loss against its formula in float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from jointnmt.text.special import pad_id
from jointnmt.training.loss import cross_entropy_sums, divergence_sum


def expected(logits: np.ndarray, gold: np.ndarray, smoothing: float) -> tuple[float, float]:
    """(1 - e) NLL(gold) + e / V * sum of NLL over the vocabulary, summed over tokens that are not padding."""
    loss = plain = 0.0
    for row, token in zip(logits.reshape(-1, logits.shape[-1]).astype(np.float64), gold.flatten(), strict=True):
        if token == pad_id:
            continue
        nll = np.log(np.exp(row - row.max()).sum()) + row.max() - row
        loss += (1 - smoothing) * nll[token] + smoothing / len(row) * nll.sum()
        plain += nll[token]
    return loss, plain


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_equals_the_formula(smoothing: float) -> None:
    logits = torch.randn(3, 5, 11) * 4
    gold = torch.randint(1, 11, (3, 5))
    gold[1, 3:] = pad_id
    loss, plain = cross_entropy_sums(logits, gold, smoothing)
    assert (loss.item(), plain.item()) == pytest.approx(expected(logits.numpy(), gold.numpy(), smoothing), rel=1e-6)


def test_sentence_means_are_summed_over_sentences() -> None:
    logits, gold = torch.randn(2, 3, 7, requires_grad=True), torch.tensor([[1, 2, 3], [4, pad_id, pad_id]])
    loss, nll = cross_entropy_sums(logits, gold, 0.1, sentence_means=True)
    each = [cross_entropy_sums(logits[i : i + 1], gold[i : i + 1], 0.1)[0] for i in (0, 1)]
    torch.testing.assert_close(loss, each[0] / 3 + each[1])
    torch.testing.assert_close(nll, cross_entropy_sums(logits, gold, 0.1)[1])
    (expected,) = torch.autograd.grad(each[0] / 3 + each[1], logits)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], expected)


def test_gradient_is_softmax_minus_the_smoothed_target() -> None:
    logits = torch.randn(2, 3, 7, requires_grad=True)
    gold = torch.tensor([[1, 2, 3], [4, pad_id, pad_id]])
    cross_entropy_sums(logits, gold, 0.2)[0].backward()
    wanted = logits.detach().softmax(-1) - 0.2 / 7 - 0.8 * torch.nn.functional.one_hot(gold, 7)
    wanted[gold == pad_id] = 0
    torch.testing.assert_close(logits.grad, wanted)


def test_padding_adds_nothing() -> None:
    logits, gold = torch.randn(2, 4, 9), torch.randint(1, 9, (2, 4))
    wide_logits = torch.cat([logits, torch.randn(2, 3, 9)], 1)
    wide_gold = torch.cat([gold, torch.full((2, 3), pad_id)], 1)
    torch.testing.assert_close(
        cross_entropy_sums(wide_logits, wide_gold, 0.1), cross_entropy_sums(logits, gold, 0.1), rtol=1e-6, atol=0
    )


def test_half_precision_logits_are_summed_in_float32() -> None:
    logits, gold = (torch.randn(8, 16, 50) * 3).bfloat16(), torch.randint(1, 50, (8, 16))
    half, single = cross_entropy_sums(logits, gold, 0.1), cross_entropy_sums(logits.float(), gold, 0.1)
    assert half[0].dtype == half[1].dtype == torch.float32
    assert half == single


def apart(first: torch.Tensor, second: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """The mean of KL(p, q) and KL(q, p), summed over tokens that are not padding, in PyTorch's float64."""
    p, q = first.double().log_softmax(-1), second.double().log_softmax(-1)
    both = (p.exp() * (p - q)).sum(-1) / 2 + (q.exp() * (q - p)).sum(-1) / 2
    return both[gold != pad_id].sum()


def test_the_divergence_and_its_gradient_equal_the_formula() -> None:
    logits = [(torch.randn(2, 3, 11) * 3).requires_grad_() for _ in range(2)]
    gold = torch.tensor([[1, 2, 3], [4, pad_id, pad_id]])
    found, wanted = divergence_sum(*logits, gold), apart(*logits, gold)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5) and wanted > 1
    expected = torch.autograd.grad(3 * wanted, logits)
    for gradient, its in zip(torch.autograd.grad(3 * found, logits), expected, strict=True):
        torch.testing.assert_close(gradient, its, rtol=1e-4, atol=1e-6)
        assert not gradient[gold == pad_id].any()


def test_the_divergence_of_sentence_means_is_summed_over_sentences() -> None:
    logits, gold = torch.randn(2, 2, 3, 7), torch.tensor([[1, 2, 3], [4, pad_id, pad_id]])
    each = [divergence_sum(*(one[i : i + 1] for one in logits), gold[i : i + 1]) for i in (0, 1)]
    torch.testing.assert_close(divergence_sum(*logits, gold, sentence_means=True), each[0] / 3 + each[1])


def test_equal_predictions_are_not_apart() -> None:
    logits = torch.randn(2, 3, 7).bfloat16().requires_grad_()
    total = divergence_sum(logits, logits.detach().clone() + 0, torch.ones(2, 3, dtype=torch.long))
    (gradient,) = torch.autograd.grad(total, logits)
    assert total == 0 and gradient.dtype == torch.bfloat16
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-7)
