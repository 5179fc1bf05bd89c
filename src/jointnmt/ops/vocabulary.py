"""Operations over the vocabulary: cross-entropy, the divergence of two predictions, log-softmax, top-k."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from jointnmt.ops.backend import kernels_read, uses_kernels
from jointnmt.ops.native.allocator import allocator
from jointnmt.ops.native.calls import call, empty, rows_of, zeros

NO_TOKEN = torch.iinfo(torch.long).min
"""An `ignore_index` that is no gold token, so that PyTorch ignores none."""


def cross_entropy(
    logits: Float[Tensor, "N V"], gold: Int[Tensor, " N"], weights: Float[Tensor, " N"], label_smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"]]:
    """The weighted sum of label-smoothed losses; and each row's plain negative log-likelihood, without gradient.

    The loss of a row is `(1 - e)` times the gold token's negative log-likelihood plus `e / V` times the sum over all
    vocabulary entries. Computed in float32, whatever the dtype of the logits.

    Raises:
        IndexError: if a gold token is not in the vocabulary; on a GPU, PyTorch's own error.
        ValueError: if there is not one gold token for each row; RuntimeError, if not one weight.
    """
    if not (uses_kernels(logits) and logits.ndim == 2 and gold.shape == weights.shape == (len(logits),)):
        logits = logits.float()
        loss_of = partial(functional.cross_entropy, reduction="none", ignore_index=NO_TOKEN)
        losses = loss_of(logits, gold, label_smoothing=label_smoothing)
        with torch.no_grad():
            nll = loss_of(logits, gold) if label_smoothing else losses.detach()
        return losses.dot(weights), nll
    if not bool(((gold >= 0) & (gold < logits.shape[1])).all()):
        raise IndexError(f"gold tokens {gold.min()} to {gold.max()} of a vocabulary of {logits.shape[1]}")
    loss, nll = _CrossEntropy.apply(logits, gold.long(), weights, label_smoothing)
    return loss, nll


class _CrossEntropy(torch.autograd.Function):
    """Reads the logits twice and writes one gradient; PyTorch's loss keeps and writes several tensors of their size."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, weights: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        logits, gold = logits.contiguous(), gold.contiguous()
        statistics = zeros(len(gold), 3)
        call("cross_entropy_forward", logits, *logits.shape, logits, gold, statistics)
        ctx.save_for_backward(logits, gold, weights, statistics)
        ctx.smoothing = smoothing
        _, nll, even = statistics.unbind(1)
        ctx.mark_non_differentiable(nll)
        if not smoothing:  # with a logit of minus infinity, `even` is infinite
            return nll.dot(weights), nll
        return (1 - smoothing) * nll.dot(weights) + smoothing * even.dot(weights), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """softmax(logits) minus the smoothed target, times the weight of the row."""
        logits, gold, weights, statistics = ctx.saved_tensors
        result = empty(logits, *logits.shape)
        call(
            "cross_entropy_backward", logits, *logits.shape, logits, gold, statistics, weights * gradient,
            float(ctx.smoothing), result,
        )  # fmt: skip
        return result, None, None, None


def divergence(
    first: Float[Tensor, "N V"], second: Float[Tensor, "N V"], weights: Float[Tensor, " N"]
) -> Float[Tensor, ""]:
    """The weighted sum of each row's symmetric divergence between two predictions, in nats, given their logits.

    It is the mean of the Kullback-Leibler divergences in both directions, as in R-Drop (Liang et al. 2021, Eq. 2).
    Computed in float32, whatever the dtype of the logits.
    """
    fits = first.shape == second.shape and weights.shape == (len(first),) and weights.dtype == torch.float32
    if first.ndim == 2 and fits and uses_kernels(first, beside=[second]):
        return _Divergence.apply(first, second, weights)
    p, q = (logits.log_softmax(-1, dtype=torch.float32) for logits in (first, second))
    return ((p.exp() - q.exp()) * (p - q)).sum(-1).dot(weights) / 2


class _Divergence(torch.autograd.Function):
    """`divergence`; computes the gradients together with the value, as both need the probabilities."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, weights: Tensor) -> Tensor:
        first, second = first.contiguous(), second.contiguous()
        apart, gradients = zeros(len(first)), [empty(first, *first.shape) for _ in range(2)]
        call("divergence", first, *first.shape, first, second, weights.contiguous(), apart, *gradients)
        ctx.save_for_backward(*gradients)
        return apart.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        first, second = ctx.saved_tensors
        return first * gradient, second * gradient, None


def log_softmax(logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
    """Log-probabilities, in float32 at least, as a new tensor. A row with a NaN is all NaN."""
    if not (kernels_read(logits) and logits.numel()) or (logits.requires_grad and torch.is_grad_enabled()):
        return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    logits = logits.contiguous()
    result = allocator.empty(tuple(logits.shape), torch.float32)
    call("log_softmax", logits, *rows_of(logits), logits, result)
    return result


class TopK(NamedTuple):
    """The largest values of each row, in descending order, ties by index; on the CPU."""

    values: Float[Tensor, "N k"]
    indices: Int[Tensor, "N k"]
    has_nan: bool
    """Whether any value of all rows is NaN."""


def topk(values: Float[Tensor, "N V"], k: int) -> TopK:
    """The `k` largest values of each row and their indices; of equal values the first.

    Results are on the CPU, where search continues: a GPU is synchronised once (twice if many equal values have to be
    ordered). `Tensor.topk` alone does not specify which of equal values it takes, and half precision has many equal
    ones.
    """
    width = values.shape[-1]
    k = min(k, width)
    if not k:
        nothing = torch.empty(len(values), 0, dtype=values.dtype, device="cpu")
        return TopK(nothing, nothing.long(), bool(values.isnan().any()))
    if values.dtype == torch.float32 and kernels_read(values):
        values = values.contiguous()
        best, places = values.new_empty(len(values), k), values.new_empty(len(values), k, dtype=torch.long)
        has_nan = call("topk", values, *values.shape, values, k, best, places)
        return TopK(best, places, bool(has_nan))
    larger = min(2 * k + 16, width)  # more than k, to include most of the equal ones
    found, unordered = (each.cpu() for each in values.topk(larger, dim=-1))
    if bool(found.isnan().any()):  # NaN is the largest for `Tensor.topk`
        return TopK(found[:, :k], unordered[:, :k], has_nan=True)
    places, order = unordered.sort(dim=-1)
    ordered, ranks = found.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    places = places.gather(-1, ranks)
    last = found[:, k - 1]
    undecided = (found[:, -1] == last) & (last > -torch.inf)
    if larger < width and bool(undecided.any()):
        rows = undecided.nonzero().squeeze(1)
        every = values[rows.to(values.device)].sort(dim=-1, descending=True, stable=True)
        ordered[rows], places[rows] = (each[:, :larger].cpu() for each in every)
    return TopK(ordered[:, :k], places[:, :k], has_nan=False)
