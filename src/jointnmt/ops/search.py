"""Operations of search: which tokens may come next, and one position of a beam search."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from jointnmt.ops.backend import kernels_read
from jointnmt.ops.native.calls import Restriction, call
from jointnmt.ops.vocabulary import log_softmax, topk

HAS_NAN, ANY_SETTLED = 1, 2
"""Bits of the value returned by the kernel of `advance_beams`."""


def restrict(log_probabilities: Float[Tensor, "B K V"], required: Sequence[int | None], banned: Sequence[int]) -> None:
    """Set tokens that are not allowed to minus infinity, in place; the others are not renormalised.

    Args:
        log_probabilities: log-probabilities of the next token of each sentence's hypotheses.
        required: the only token allowed in each sentence, even if it is banned; None: all that are not banned.
        banned: tokens that are not allowed.

    Raises:
        ValueError: if one of `required` or `banned` is not a token.
    """
    check_tokens(required, banned, log_probabilities.shape[-1])
    found = [(row, token) for row, token in enumerate(required) if token is not None]
    if found:  # otherwise no transfer to a GPU, and no synchronisation
        index = torch.tensor(found, dtype=torch.long, device="cpu")
        rows, tokens = index.to(log_probabilities.device, non_blocking=True).unbind(1)
        kept = log_probabilities[rows, :, tokens]  # before banning
    for token in banned:  # one by one: a list would be copied to a GPU
        log_probabilities[:, :, token].fill_(-torch.inf)
    if found:
        log_probabilities[rows] = -torch.inf
        log_probabilities[rows, :, tokens] = kept


def check_tokens(required: Sequence[int | None], banned: Sequence[int], vocabulary: int) -> None:
    for token in (*required, *banned):
        if token is not None and not 0 <= token < vocabulary:
            raise ValueError(f"{token} is not a token of a vocabulary of {vocabulary} pieces")


class Continuations(NamedTuple):
    """Continuations of each sentence's hypotheses by one token, best first; on the CPU."""

    rows: Int[Tensor, "B C"]
    """Index of the continued hypothesis among those of all sentences."""
    ids: Int[Tensor, "B C"]
    token_log_probabilities: Float[Tensor, "B C"]

    def pick(self, ranks: Int[Tensor, "B D"]) -> Continuations:
        """The continuations of these ranks."""
        return Continuations(*(values.gather(1, ranks) for values in self))


class Hypotheses(NamedTuple):
    """The beams of sentences, all t tokens long; on the CPU."""

    ids: Int[Tensor, "B K L"]
    """Tokens with the begin mark: L is t + 1."""
    token_log_probabilities: Float[Tensor, "B K t"]
    log_probabilities: Float64[Tensor, "B K"]
    """Sums of the tokens' log-probabilities; minus infinity marks an empty beam."""

    def extended(self, by: Continuations) -> Hypotheses:
        """Hypotheses extended by these continuations, in their order."""
        flat, shape = by.rows.flatten(), by.rows.shape
        ids, tokens, sums = (each.flatten(0, 1).index_select(0, flat).view(*shape, *each.shape[2:]) for each in self)
        return Hypotheses(
            torch.cat([ids, by.ids.unsqueeze(-1)], -1),
            torch.cat([tokens, by.token_log_probabilities.unsqueeze(-1)], -1),
            sums + by.token_log_probabilities,
        )


class BeamStep(NamedTuple):
    """The result of one position of beam search."""

    candidates: Continuations
    """The 2K best continuations of each sentence: enough that K remain when K of them end."""
    ranks: Int[Tensor, "B K"]
    """Indices of the survivors among the candidates: the K best that do not end their sentence."""
    rows: Int[Tensor, "B K"]
    """Indices of the hypotheses that the survivors continue, among those of all sentences."""
    survivors: Hypotheses
    has_nan: bool
    """Whether any log-probability of a token is NaN."""
    any_settled: bool
    """Whether one of the K best candidates ends its sentence, or a sentence has no survivor."""


def advance_beams(
    logits: Float[Tensor, "N V"],
    hypotheses: Hypotheses,
    required: Sequence[int | None],
    banned: Sequence[int],
    end: int,
) -> BeamStep:
    """Continue the K hypotheses of each sentence by one token; ties go to the lower beam, then to the lower id.

    Args:
        logits: logits of the next token; row `b * K + k` is beam k of sentence b.
        hypotheses: beams so far; their tokens' log-probabilities in float32.
        required: see `restrict`.
        banned: see `restrict`.
        end: the token that ends a sentence.

    Raises:
        ValueError: if one of `required` or `banned` is not a token, or sizes differ.
    """
    check_tokens(required, banned, logits.shape[-1])  # kernels use them as indices
    sentences, beams = hypotheses.log_probabilities.shape
    if logits.shape[0] != sentences * beams or len(required) != sentences:
        raise ValueError(f"{len(logits)} rows and {len(required)} sentences for {sentences} sentences of {beams} beams")
    if kernels_read(logits) and logits.stride(-1) == 1:
        return _native(logits, hypotheses, required, banned, end)
    log_probabilities = log_softmax(logits).unflatten(0, (sentences, beams))
    restrict(log_probabilities, required, banned)
    return extend_beams(log_probabilities, hypotheses, end)


def extend_beams(log_probabilities: Float[Tensor, "B K V"], hypotheses: Hypotheses, end: int) -> BeamStep:
    """`advance_beams` from log-probabilities of the next token, minus infinity where a token is not allowed."""
    sentences, beams = hypotheses.log_probabilities.shape
    # The 2K best of a sentence are among the 2K best of each of its hypotheses.
    tokens, ids, has_nan = topk(log_probabilities.flatten(0, 1), 2 * beams)
    tokens, ids = (each.unflatten(0, (sentences, beams)) for each in (tokens, ids))
    every = (hypotheses.log_probabilities.unsqueeze(-1) + tokens).flatten(1)
    order = every.argsort(dim=1, descending=True, stable=True)[:, : 2 * beams]
    of_row = ids.shape[-1]
    ids, tokens = (each.flatten(1).gather(1, order) for each in (ids, tokens))
    first_rows = torch.arange(0, sentences * beams, beams, device="cpu").unsqueeze(1)
    candidates = Continuations(first_rows + order // of_row, ids, tokens)
    ends = ids == end
    ranks = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :beams]
    picked = candidates.pick(ranks)
    survivors = hypotheses.extended(picked)
    finished = ends[:, :beams] & (every.gather(1, order[:, :beams]) > -torch.inf)
    settled = finished.any() | (survivors.log_probabilities[:, 0] == -torch.inf).any()
    return BeamStep(candidates, ranks, picked.rows, survivors, has_nan, bool(settled))


def allocate_hypotheses(sentences: int, beams: int, tokens: int) -> Hypotheses:
    """Uninitialised memory for the beams of sentences."""
    return Hypotheses(
        torch.empty(sentences, beams, tokens + 1, dtype=torch.long, device="cpu"),
        torch.empty(sentences, beams, tokens, dtype=torch.float32, device="cpu"),
        torch.empty(sentences, beams, dtype=torch.float64, device="cpu"),
    )


def allocate_step(sentences: int, beams: int) -> tuple[Continuations, Tensor, Tensor]:
    """Uninitialised memory for candidates, ranks and rows of a `BeamStep`."""
    kinds = torch.long, torch.long, torch.float32
    candidates = Continuations(*(torch.empty(sentences, 2 * beams, dtype=kind, device="cpu") for kind in kinds))
    ranks, rows = torch.empty(2, sentences, beams, dtype=torch.long, device="cpu").unbind()
    return candidates, ranks, rows


def _native(
    logits: Tensor, hypotheses: Hypotheses, required: Sequence[int | None], banned: Sequence[int], end: int
) -> BeamStep:
    sentences, beams, length = hypotheses.token_log_probabilities.shape
    only = (ctypes.c_int64 * sentences)(*(-1 if token is None else token for token in required))
    never = (ctypes.c_int64 * len(banned))(*banned)
    restriction = Restriction(ctypes.addressof(only), ctypes.addressof(never), len(banned), end)
    old = Hypotheses(*(each.contiguous() for each in hypotheses))
    candidates, ranks, rows = allocate_step(sentences, beams)
    survivors = allocate_hypotheses(sentences, beams, length + 1)
    found = call(
        "advance_beams", logits, sentences, beams, logits.shape[1], logits, logits.stride(0), length,
        pointers(old), ctypes.byref(restriction), pointers(candidates), ranks, rows, pointers(survivors),
    )  # fmt: skip
    return BeamStep(candidates, ranks, rows, survivors, bool(found & HAS_NAN), bool(found & ANY_SETTLED))


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """The kernels' `Hypotheses` or `Continuations`: the addresses of their parts."""
    return (ctypes.c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))
