"""Beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from jointnmt.errors import ConfigurationError
from jointnmt.models.interface import MultiStepState, TranslationModel
from jointnmt.ops import BeamStep, MultiStepDecoder, advance_beams, advance_positions, extend_beams, log_softmax
from jointnmt.search.beam_state import BeamState, rows_to_keep, state_rows
from jointnmt.search.hypothesis import Hypothesis
from jointnmt.search.rules import Constraint, Rules, RulesConfig
from jointnmt.search.scoring import check_evaluating, check_numbers, check_possible
from jointnmt.search.trace import SearchTrace
from jointnmt.text.special import eos_id


class SearchConfig(RulesConfig):
    """Settings of beam search."""

    beam_size: int = Field(5, ge=1, le=10_000, description="hypotheses kept for each sentence")


def check_num_best(num_best: int, config: SearchConfig) -> None:
    """Check that `num_best` is at least 1 and at most the beam size.

    Raises:
        ConfigurationError: if it is not.
    """
    if num_best < 1:
        raise ConfigurationError(f"num_best is {num_best}, but must be at least 1.")
    if num_best > config.beam_size:
        raise ConfigurationError(
            f"num_best is {num_best}, but beam_size is {config.beam_size}: raise it to at least {num_best}."
        )


@torch.no_grad()
def beam_search(
    model: TranslationModel,
    source: Int[Tensor, "B S"],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    num_best: int = 1,
    trace: SearchTrace | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """The `num_best` best translations of each sentence found by beam search, best first; fewer if no more exist.

    At each position a sentence's K hypotheses (K is the beam size) are extended to their 2K best continuations. Those
    that end and are among the K best are finished; the K best of the others form the next beam. A sentence is done when
    K hypotheses are finished or none is left to extend, as in the authors' framework. Ties go to the better hypothesis,
    then to the lower id. `prefixes` are target ids that each translation has to begin with; their log-probabilities
    count. `trace`, if given, records the fate of every hypothesis. `constraint` is a rule of one's own (see
    `Constraint`); with it, positions are computed one by one.

    Raises:
        ConfigurationError: if `num_best` is less than 1, or greater than the beam size.
        DataError: if a prefix is not shorter than its translation may be.
        ModelError: if the model's output is not a number, or it allows no translation of a sentence.
        ValueError: if the model is in training mode, sources or prefixes are refused (see `Rules.of`), or the
            constraint returns something else than log-probabilities.
    """
    check_evaluating(model)
    check_num_best(num_best, config)
    rules = Rules.of(source, config, prefixes, constraint)
    found: list[list[Hypothesis]] = [[] for _ in rules.limits]
    beams = BeamState.begin(len(source), config.beam_size, filled=1)
    state = model.start(source)
    rows = torch.arange(len(source), device="cpu").repeat_interleave(config.beam_size)
    position, one_by_one = 0, trace is not None or constraint is not None
    if trace is not None:
        trace.begin(len(source), config.penalty)
    while beams.sentences:
        state = state.select(rows)
        if not one_by_one and (decoder := model.multi_step_decoder(state)) is not None:
            beams, step, position = _ahead(beams, cast(MultiStepState, state), decoder, rules, position)
        else:
            logits, state = model.step(beams.last_ids(source.device), state)
            step, position = one_position(beams, logits, rules, position), position + 1
        if step.any_settled:
            for sentence, _, hypothesis in beams.finished(step.candidates, config.penalty, rules.limits):
                if len(found[sentence]) < config.beam_size:
                    found[sentence].append(hypothesis)
        if trace is not None:
            trace.extend(beams, step, found)
        beams, rows = replace(beams, hypotheses=step.survivors), step.rows.flatten()
        if step.any_settled:
            kept = rows_to_keep(_unfinished(beams, found))
            beams, rows = beams.select(kept), state_rows(kept, step.rows)
    check_possible([bool(hypotheses) for hypotheses in found])
    return [sorted(hypotheses, key=lambda each: -each.score)[:num_best] for hypotheses in found]


def _ahead(
    beams: BeamState, state: MultiStepState, decoder: MultiStepDecoder, rules: Rules, position: int
) -> tuple[BeamState, BeamStep, int]:
    """Compute the next positions, until a sentence may have settled.

    Returns the beams before the last of these positions, its result, and the number of the position after it.

    Raises:
        ModelError: if the model's output is not a number.
    """
    required = rules.required_from(beams.sentences, position, len(decoder.positions))
    found = advance_positions(decoder, beams.hypotheses, required, rules.banned, eos_id)
    check_numbers(not found.step.has_nan)
    state.take_positions(found.slots)
    return replace(beams, hypotheses=found.before), found.step, position + found.positions


def one_position(beams: BeamState, logits: Float[Tensor, "N V"], rules: Rules, position: int) -> BeamStep:
    """The result of the next position.

    Raises:
        ModelError: if the model's output is not a number.
    """
    if rules.constraint is None:
        required = rules.all_required(beams.sentences, position)
        step = advance_beams(logits, beams.hypotheses, required, rules.banned, eos_id)
    else:
        log_probabilities = log_softmax(logits).unflatten(0, beams.hypotheses.log_probabilities.shape)
        rules.apply(log_probabilities, beams, position)
        step = extend_beams(log_probabilities, beams.hypotheses, eos_id)
    check_numbers(not step.has_nan)
    return step


def _unfinished(beams: BeamState, found: Sequence[Sequence[Hypothesis]]) -> list[bool]:
    """Whether each sentence is not done: it has a hypothesis to extend and fewer than K finished ones."""
    log_probabilities = beams.hypotheses.log_probabilities
    best, size = log_probabilities[:, 0].tolist(), log_probabilities.shape[1]  # if beam 0 is empty, all are
    return [
        total > -torch.inf and len(found[sentence]) < size
        for total, sentence in zip(best, beams.sentences, strict=True)
    ]
