"""Scores of hypotheses, and rescoring of given translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jointnmt.data.batch import Batch
from jointnmt.errors import ModelError
from jointnmt.models.interface import TranslationModel
from jointnmt.ops import log_softmax, topk
from jointnmt.text.special import bos_id, pad_id


@dataclass(frozen=True)
class LengthPenalty:
    """Length normalisation of scores; lengths include the end mark.

    Without an offset, the score is log-probability / length ** exponent. With one, the length counts as
    (offset + length) / (offset + 1): with 5, the penalty of Wu et al. 2016, Eq. 14.
    """

    exponent: float
    offset: float = 0.0

    def score(self, log_probability: float, length: int) -> float:
        """Score of a hypothesis, higher is better: log-probability in nats over the length penalty."""
        return log_probability / float(((self.offset + length) / (self.offset + 1)) ** self.exponent)


def check_evaluating(model: TranslationModel) -> None:
    """Check that the model is in evaluation mode: dropout would make its scores random.

    Raises:
        ValueError: if the model, or a part of it, is in training mode.
    """
    if any(module.training for module in model.modules()):
        raise ValueError("the model is in training mode, so dropout would distort its scores; call model.eval() first")


class Rescored(NamedTuple):
    """Scores of a given translation's tokens, each conditioned on the tokens before it."""

    log_probabilities: tuple[float, ...]
    """Log-probability of each target token, end mark included, in nats."""
    first_choices: tuple[bool, ...]
    """Whether each token is the most probable one; ties go to the lowest id."""


@torch.no_grad()
def rescore(model: TranslationModel, batch: Batch) -> list[Rescored]:
    """Teacher-forced log-probability of every target token of each sentence, and whether it is the most probable one.

    For the output of search, log-probabilities equal `Hypothesis.token_log_probabilities` up to rounding.

    Raises:
        ModelError: if the model's output is not a number.
    """
    return _rescored(_teacher_forced(model, batch), batch)


def _teacher_forced(model: TranslationModel, batch: Batch) -> Float[Tensor, "B T V"]:
    """Log-probabilities of the whole vocabulary at each target position."""
    check_evaluating(model)
    return log_softmax(model(batch.source, batch.target_input))


def _rescored(log_probabilities: Float[Tensor, "B T V"], batch: Batch) -> list[Rescored]:
    chosen = log_probabilities.gather(-1, batch.target_output.unsqueeze(-1)).squeeze(-1)  # [B, T, V] -> [B, T]
    check_numbers(not bool(chosen[batch.target_mask].isnan().any()))
    first = log_probabilities.argmax(-1) == batch.target_output
    lengths = batch.target_mask.sum(1).tolist()
    return [
        Rescored(tuple(row[:length]), tuple(hits[:length]))
        for row, hits, length in zip(chosen.tolist(), first.tolist(), lengths, strict=True)
    ]


@torch.no_grad()
def rescore_with_next(
    model: TranslationModel, batch: Batch, count: int
) -> tuple[list[Rescored], list[list[list[tuple[int, float]]]]]:
    """`rescore`, and the `count` most probable tokens at every target position of each sentence, in the same pass.

    These are ids with log-probabilities, best first, conditioned on the given translation before the position. Padding
    and begin marks are excluded, as in search; there are fewer if no more are possible.

    Raises:
        ModelError: if the model's output is not a number.
    """
    log_probabilities = _teacher_forced(model, batch)
    rescored = _rescored(log_probabilities, batch)
    log_probabilities[..., [pad_id, bos_id]] = -torch.inf
    sizes = log_probabilities.shape[:2]
    values, ids = (each.view(*sizes, -1).tolist() for each in best(log_probabilities.flatten(0, 1), count))

    def possible(position: tuple[list[int], list[float]]) -> list[tuple[int, float]]:
        return [(token, value) for token, value in zip(*position, strict=True) if value > -torch.inf]

    return rescored, [
        [possible(each) for each in zip(ids[row][:length], values[row][:length], strict=True)]
        for row, length in enumerate(batch.target_mask.sum(1).tolist())
    ]


def best(values: Float[Tensor, "N V"], count: int) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"]]:
    """The `count` largest values of each row and their indices, best first, ties by index; on the CPU.

    Raises:
        ModelError: if a value is NaN.
    """
    found = topk(values, count)
    check_numbers(not found.has_nan)
    return found.values, found.indices


def check_numbers(are_numbers: bool) -> None:
    """Check the model's output, which may not have NaN.

    Raises:
        ModelError: if `are_numbers` is false.
    """
    if not are_numbers:
        raise ModelError(
            "The model's output is not a number (NaN): its weights are damaged, training has diverged, half precision "
            "overflows, or a rule of one's own forbids every token or returns NaN. Try float32 precision, or another "
            "checkpoint."
        )


def check_possible(are_possible: Sequence[bool]) -> None:
    """Check that the model allows a translation of each sentence of the batch.

    Raises:
        ModelError: if not all of `are_possible` are true.
    """
    if not all(are_possible):
        raise ModelError(
            "The model allows no translation of a sentence: every continuation has probability 0. A prefix asks for "
            "what a rule of the model forbids, or a constraint forbids every token."
        )
