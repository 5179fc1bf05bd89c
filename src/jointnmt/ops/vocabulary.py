"""Operations over the vocabulary: cross-entropy, log-softmax, top-k, and the choice of tokens in search."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from jointnmt.ops.backend import kernels_read, uses_kernels
from jointnmt.ops.native.allocator import allocator
from jointnmt.ops.native.calls import Restriction, call, empty, rows_of, zeros


def cross_entropy(
    logits: Float[Tensor, "N V"], gold: Int[Tensor, " N"], weights: Float[Tensor, " N"], label_smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"]]:
    """The weighted sum of label-smoothed losses; and each row's plain negative log-likelihood, without gradient.

    The loss of a row is `(1 - e)` times the gold token's negative log-likelihood plus `e / V` times the sum of every
    vocabulary entry's. Computed in float32, whatever the logits are.

    Raises:
        IndexError: if a gold token is not in the vocabulary.
    """
    if not uses_kernels(logits):
        logits = logits.float()
        losses = functional.cross_entropy(logits, gold, reduction="none", label_smoothing=label_smoothing)
        with torch.no_grad():
            nll = functional.cross_entropy(logits, gold, reduction="none") if label_smoothing else losses.detach()
        return losses.dot(weights), nll
    if not bool(((gold >= 0) & (gold < logits.shape[1])).all()):
        raise IndexError(f"gold tokens {gold.min()} to {gold.max()} of a vocabulary of {logits.shape[1]}")
    loss, nll = _CrossEntropy.apply(logits, gold.long(), weights, label_smoothing)
    return loss, nll


class _CrossEntropy(torch.autograd.Function):
    """Reads the logits twice and writes one gradient; PyTorch's keeps and writes several tensors of their size."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, weights: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        logits, gold = logits.contiguous(), gold.contiguous()
        statistics = zeros(len(gold), 3)
        call("cross_entropy_forward", logits, *logits.shape, logits, gold, statistics)
        ctx.save_for_backward(logits, gold, weights, statistics)
        ctx.smoothing = smoothing
        _, nll, even = statistics.unbind(1)
        ctx.mark_non_differentiable(nll)
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


def log_softmax(logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
    """Log-probabilities, in float32 at least, in memory of their own. A row with a NaN is all NaN."""
    if not kernels_read(logits) or (logits.requires_grad and torch.is_grad_enabled()):
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

    They lie on the CPU, where search goes on: it waits for a GPU once (again, if it has to settle which of many equal
    values come first), and computes nothing there on so few numbers. `Tensor.topk` alone leaves open which of equal
    values it takes, and half precision has many equal ones.
    """
    width = values.shape[-1]
    k = min(k, width)
    if values.dtype == torch.float32 and kernels_read(values):
        values = values.contiguous()
        best, places = values.new_empty(len(values), k), values.new_empty(len(values), k, dtype=torch.long)
        has_nan = call("topk", values, *values.shape, values, k, best, places)
        return TopK(best, places, bool(has_nan))
    larger = min(2 * k + 16, width)  # more than asked for: among them are most of the equal ones
    found, unordered = (each.cpu() for each in values.topk(larger, dim=-1))
    if bool(found.isnan().any()):  # which are the largest, for `Tensor.topk`
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


def restrict(log_probabilities: Float[Tensor, "B K V"], required: Sequence[int | None], banned: Sequence[int]) -> None:
    """Set tokens that are not allowed to minus infinity, in place; the others are not renormalised.

    Args:
        log_probabilities: of the next token of each sentence's hypotheses.
        required: the only token that is allowed in each sentence, even if it is banned; None: all that are not banned.
        banned: tokens that are not allowed.
    """
    found = [(row, token) for row, token in enumerate(required) if token is not None]
    if found:  # else nothing is sent to a GPU, nor waited for
        index = torch.tensor(found, dtype=torch.long, device="cpu")
        rows, tokens = index.to(log_probabilities.device, non_blocking=True).unbind(1)
        kept = log_probabilities[rows, :, tokens]  # before banning
    for token in banned:  # one by one: a list would have to be sent to a GPU
        log_probabilities[:, :, token].fill_(-torch.inf)
    if found:
        log_probabilities[rows] = -torch.inf
        log_probabilities[rows, :, tokens] = kept


class BestContinuations(NamedTuple):
    """The best continuations by one token of each sentence's hypotheses, best first; on the CPU."""

    rows: Int[Tensor, "B C"]
    """The row of logits of the hypothesis that is continued."""
    ids: Int[Tensor, "B C"]
    token_log_probabilities: Float[Tensor, "B C"]
    has_nan: bool
    """Whether any log-probability is NaN."""


def best_continuations(
    logits: Float[Tensor, "N V"],
    totals: Float64[Tensor, "B K"],
    required: Sequence[int | None],
    banned: Sequence[int],
    count: int,
) -> BestContinuations:
    """The `count` best continuations of the K hypotheses of each sentence; ties go to the lower beam, then lower id.

    Args:
        logits: of the next token; row `b * K + k` is that of beam k of sentence b.
        totals: log-probabilities of the hypotheses; on the CPU.
        required: see `restrict`.
        banned: likewise.
        count: no more than there are continuations.
    """
    sentences, beams = totals.shape
    if not kernels_read(logits) or logits.stride(-1) != 1:
        log_probabilities = log_softmax(logits).unflatten(0, (sentences, beams))
        restrict(log_probabilities, required, banned)
        # The best of a sentence are among as many of the best of each of its hypotheses.
        tokens, ids, has_nan = topk(log_probabilities.flatten(0, 1), count)
        tokens, ids = (each.unflatten(0, (sentences, beams)) for each in (tokens, ids))
        order = (totals.unsqueeze(-1) + tokens).flatten(1).argsort(dim=1, descending=True, stable=True)[:, :count]
        of_row = ids.shape[-1]
        ids, tokens = (each.flatten(1).gather(1, order) for each in (ids, tokens))
        first_rows = torch.arange(0, sentences * beams, beams, device="cpu").unsqueeze(1)
        return BestContinuations(first_rows + order // of_row, ids, tokens, has_nan)
    totals, count = totals.contiguous(), min(count, beams * logits.shape[1])
    only = (ctypes.c_int64 * sentences)(*(-1 if token is None else token for token in required))
    never = (ctypes.c_int64 * len(banned))(*banned)
    restriction = Restriction(ctypes.addressof(only), ctypes.addressof(never), len(banned))
    rows, ids = torch.empty(2, sentences, count, dtype=torch.long, device="cpu").unbind()
    tokens = torch.empty(sentences, count, dtype=torch.float32, device="cpu")
    found = call(
        "best_continuations", logits, sentences, beams, logits.shape[1], logits, logits.stride(0), totals,
        ctypes.byref(restriction), count, rows, ids, tokens,
    )  # fmt: skip
    return BestContinuations(rows, ids, tokens, bool(found))
