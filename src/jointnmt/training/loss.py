"""The training loss: label-smoothed cross entropy, summed over target tokens."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jointnmt.text.special import pad_id


def cross_entropy_sums(
    logits: Float[Tensor, "B T V"], target_output: Int[Tensor, "B T"], label_smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The label-smoothed loss and the plain negative log-likelihood, both in nats, summed over real target tokens.

    The loss of a token is `(1 - e)` times the gold token's negative log-likelihood plus `e / V` times the sum of
    every vocabulary entry's (as the joint-representation authors' code has it). Padding counts nothing. Computed in
    float32, whatever the logits are. Only the loss carries a gradient.
    """
    rows, gold = logits.flatten(0, 1), target_output.flatten()  # [B, T, V] -> [B*T, V]
    loss, nll = _CrossEntropy.apply(rows, gold, label_smoothing)
    return loss, nll


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy whose backward pass fills one [N, V] tensor, in place.

    With autograd's own formulas, the logits of a large vocabulary are read and written several times more, and on a
    CPU that takes as long as the projection that makes them.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
        log_probabilities, real = logits.log_softmax(1, dtype=torch.float32), gold != pad_id
        nll = -(log_probabilities.gather(1, gold.unsqueeze(1)).squeeze(1) * real).sum()
        even = -(log_probabilities.mean(1) * real).sum()
        ctx.save_for_backward(log_probabilities, gold)
        ctx.label_smoothing, ctx.kind = label_smoothing, logits.dtype
        ctx.mark_non_differentiable(nll)
        return (1 - label_smoothing) * nll + label_smoothing * even, nll

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, None, None]:
        """softmax(logits) minus the smoothed target, where the token is real."""
        log_probabilities, gold = ctx.saved_tensors
        result = log_probabilities.exp().sub_(ctx.label_smoothing / log_probabilities.shape[1])
        rows = torch.arange(len(gold), device=gold.device)
        result[rows, gold] -= 1 - ctx.label_smoothing
        result.mul_(((gold != pad_id) * gradient).unsqueeze(1))
        return result.to(ctx.kind), None, None
