"""The training loss: label-smoothed cross entropy, summed over target tokens."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jointnmt.ops.native import operations as native
from jointnmt.text.special import pad_id


def cross_entropy_sums(
    logits: Float[Tensor, "B T V"],
    target_output: Int[Tensor, "B T"],
    label_smoothing: float,
    sentence_means: bool = False,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The label-smoothed loss and the negative log-likelihood, both in nats, summed over real target tokens.

    The loss of a token is `(1 - e)` times the gold token's negative log-likelihood plus `e / V` times the sum of
    every vocabulary entry's (as the joint-representation authors' code has it). Padding counts nothing. Computed in
    float32, whatever the logits are. Only the loss carries a gradient. With `sentence_means`, the loss (not the
    negative log-likelihood) is the sum over sentences of each one's mean, as in the lexical shortcuts' authors' code.
    """
    rows, real = logits.flatten(0, 1), (target_output != pad_id).float()  # [B, T, V] -> [B*T, V]
    weights = real / real.sum(dim=1, keepdim=True).clamp(min=1) if sentence_means else real
    gold = target_output.flatten()
    if native.usable(rows):
        loss, each = native.cross_entropy(rows, gold, weights.flatten(), label_smoothing)
        return loss, each.dot(real.flatten())
    loss, nll = _CrossEntropy.apply(rows, gold, weights.flatten(), label_smoothing)
    return loss, nll


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy whose backward pass fills one [N, V] tensor, in place.

    With autograd's own formulas, the logits of a large vocabulary are read and written several times more, and on a
    CPU that takes as long as the projection that makes them.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, gold: Tensor, weights: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        log_probabilities = logits.log_softmax(1, dtype=torch.float32)
        nll = -log_probabilities.gather(1, gold.unsqueeze(1)).squeeze(1)
        even = -log_probabilities.mean(1)
        ctx.save_for_backward(log_probabilities, gold, weights)
        ctx.label_smoothing, ctx.kind = label_smoothing, logits.dtype
        total = (nll * (gold != pad_id)).sum()
        ctx.mark_non_differentiable(total)
        return (1 - label_smoothing) * (nll * weights).sum() + label_smoothing * (even * weights).sum(), total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, None, None, None]:
        """softmax(logits) minus the smoothed target, times the weight of the token."""
        log_probabilities, gold, weights = ctx.saved_tensors
        result = log_probabilities.exp().sub_(ctx.label_smoothing / log_probabilities.shape[1])
        rows = torch.arange(len(gold), device=gold.device)
        result[rows, gold] -= 1 - ctx.label_smoothing
        result.mul_((weights * gradient).unsqueeze(1))
        return result.to(ctx.kind), None, None, None
