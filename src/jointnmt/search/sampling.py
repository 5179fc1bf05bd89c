"""Sampling translations from the model's distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Float64, Int
from pydantic import Field
from torch import Tensor

from jointnmt.models.interface import TranslationModel
from jointnmt.ops import Continuations, log_softmax
from jointnmt.ops.transfer import send
from jointnmt.search.beam_state import BeamState, rows_to_keep, state_rows
from jointnmt.search.hypothesis import Hypothesis
from jointnmt.search.rules import Constraint, Rules, RulesConfig
from jointnmt.search.scoring import best, check_evaluating, check_numbers, check_possible
from jointnmt.text.special import eos_id

LARGEST_TOP_K_SHARE = 0.1
"""Largest share of the vocabulary that a top-k selects; above it the whole vocabulary is sorted."""
SORTED_AT_ONCE = 2**22
"""Most probabilities sorted at once; each takes some fifty bytes meanwhile."""


class SamplingConfig(RulesConfig):
    """Settings of sampling; applied in the order temperature, top-k, top-p."""

    temperature: float = Field(1.0, ge=0.0001, description="divides log-probabilities: below 1 prefers likely tokens")
    top_k: int | None = Field(None, ge=1, description="draw from the k most likely tokens; null: from all")
    top_p: float = Field(1.0, gt=0, le=1, description="draw from the fewest tokens with this total probability")


def sentence_generator(seed: int, *number: int) -> torch.Generator:
    """A random generator for one sentence, so that its samples do not depend on the batch.

    `number` identifies the sentence and may have several parts, such as (line, sentence of the line).
    """
    digest = hashlib.blake2b(repr((seed, *number)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


@torch.no_grad()
def sample(
    model: TranslationModel,
    source: Int[Tensor, "B S"],
    config: SamplingConfig,
    generators: Sequence[torch.Generator],
    prefixes: Sequence[Sequence[int]] | None = None,
    num_samples: int = 1,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Independent random translations of each sentence, in the order of sampling.

    Sentence b takes its random numbers only from `generators[b]` (on the CPU; `sentence_generator` makes one from a
    seed), so its samples do not depend on the rest of the batch. Scores and log-probabilities are the model's, as in
    rescoring, without temperature, top-k and top-p. A `constraint` comes before these.

    Raises:
        DataError: if a prefix is not shorter than its translation may be.
        ModelError: if the model's output is not a number, or it allows no translation of a sentence.
        ValueError: if the model is in training mode, `num_samples` is below 1, there is not one generator for each
            sentence, sources or prefixes are refused (see `Rules.of`), or the constraint returns something else than
            log-probabilities.
    """
    check_evaluating(model)
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}, but must be at least 1")
    rules = Rules.of(source, config, prefixes, constraint)
    numbers = _random_numbers(rules.limits, num_samples, generators)
    found: list[dict[int, Hypothesis]] = [{} for _ in rules.limits]
    beams = BeamState.begin(len(source), num_samples, filled=num_samples)
    state = model.start(source)
    if num_samples > 1:
        state = state.select(torch.arange(len(source), device="cpu").repeat_interleave(num_samples))
    position = 0
    while beams.sentences:
        logits, state = model.step(beams.last_ids(source.device), state)
        log_probabilities = log_softmax(logits).unflatten(0, (-1, num_samples))
        rules.apply(log_probabilities, beams, position)
        drawn = draw(log_probabilities.flatten(0, 1), numbers[list(beams.sentences), :, position].flatten(), config)
        ids, values = (each.view(-1, num_samples) for each in drawn)
        same = torch.arange(ids.numel(), device="cpu").view_as(ids)
        candidates = Continuations(same, ids, values)
        for sentence, beam, hypothesis in beams.finished(candidates, config.penalty, rules.limits):
            found[sentence][beam] = hypothesis
        keep = [len(found[sentence]) < num_samples for sentence in beams.sentences]
        longer = beams.hypotheses.extended(candidates)
        longer = longer._replace(log_probabilities=longer.log_probabilities.masked_fill(ids == eos_id, -torch.inf))
        beams = replace(beams, hypotheses=longer).select(rows_to_keep(keep))
        if any(keep) and not all(keep):
            state = state.select(state_rows(rows_to_keep(keep), same))
        position += 1
    return [[samples[beam] for beam in range(num_samples)] for samples in found]


def draw(
    log_probabilities: Float[Tensor, "N V"], numbers: Float64[Tensor, " N"], config: SamplingConfig
) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
    """One id for each row by inverse transform sampling, with its log-probability; both on the CPU.

    A row's number in [0, 1) selects from the cumulative distribution of its tokens, the most likely first.

    Raises:
        ModelError: if a row has NaN, or no token of positive probability.
    """
    rows, width = log_probabilities.shape
    if rows * width > SORTED_AT_ONCE and rows > 1:
        most = max(1, SORTED_AT_ONCE // width)
        parts = zip(log_probabilities.split(most), numbers.split(most), strict=True)
        drawn = [draw(*part, config) for part in parts]
        return torch.cat([token for token, _ in drawn]), torch.cat([value for _, value in drawn])
    count = min(config.top_k or width, width)
    if count < LARGEST_TOP_K_SHARE * width:
        values, ids = best(log_probabilities, count)
    else:
        ordered = log_probabilities.sort(dim=-1, descending=True, stable=True)
        values, ids = (each[:, :count] for each in ordered)
    probabilities = (values.double() / config.temperature).softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    kept = (before < config.top_p) & (probabilities > 0)
    limits = probabilities.masked_fill(~kept, 0).cumsum(-1)
    ranks = (limits <= send(numbers, limits.device).unsqueeze(-1) * limits[:, -1:]).sum(-1)
    # Rounding must not select beyond the last token kept; if none is kept, the first one fails the check below.
    ranks = ranks.minimum(kept.sum(-1) - 1).clamp_(min=0)
    token, value = (each.gather(-1, ranks.unsqueeze(-1)).squeeze(-1).cpu() for each in (ids, values))
    check_numbers(not value.isnan().any())
    check_possible((value > -torch.inf).tolist())
    return token, value


def _random_numbers(
    limits: Sequence[int], num_samples: int, generators: Sequence[torch.Generator]
) -> Float64[Tensor, "B K T"]:
    """Random numbers in [0, 1) for every position of every sample."""
    if len(generators) != len(limits):
        raise ValueError(f"{len(generators)} generators for {len(limits)} sentences")
    numbers = torch.zeros(len(limits), num_samples, max(limits, default=0), dtype=torch.float64, device="cpu")
    for row, (limit, generator) in enumerate(zip(limits, generators, strict=True)):
        drawn = torch.rand((num_samples, limit), dtype=torch.float64, generator=generator, device="cpu")
        numbers[row, :, :limit] = drawn
    return numbers
