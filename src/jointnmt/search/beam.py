"""Beam search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from jointnmt.errors import ConfigurationError
from jointnmt.models.interface import TranslationModel
from jointnmt.ops import best_continuations
from jointnmt.search.beam_state import BeamState, rows_to_keep, state_rows
from jointnmt.search.hypothesis import Hypothesis
from jointnmt.search.rules import Rules, RulesConfig
from jointnmt.search.scoring import check_evaluating, check_found
from jointnmt.search.trace import SearchTrace
from jointnmt.text.special import eos_id


class SearchConfig(RulesConfig):
    """How beam search translates."""

    beam_size: int = Field(5, ge=1, le=10_000, description="hypotheses kept for each sentence")


@torch.no_grad()
def beam_search(
    model: TranslationModel,
    source: Int[Tensor, "B S"],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    num_best: int = 1,
    trace: SearchTrace | None = None,
) -> list[list[Hypothesis]]:
    """The `num_best` best translations of each sentence that beam search finds, best first; fewer if no more exist.

    At each position a sentence's K hypotheses (K is the beam size) are extended to their 2K best continuations. Those
    that end and are among the K best are finished; the K best of the others form the next beam. A sentence is done when
    K hypotheses are finished or none is left to extend: the rule of the authors' framework. Ties go to the better
    hypothesis, then to the lower id. `prefixes` are target ids that each translation has to begin with; their
    log-probabilities count. `trace`, if given, records what becomes of every hypothesis.

    Raises:
        ConfigurationError: if `num_best` is greater than the beam.
        DataError: if a prefix is longer than its translation may be.
        ModelError: if the model's output is not a number.
        ValueError: if the model is in training mode, or prefixes and sentences do not fit together.
    """
    check_evaluating(model)
    if num_best > config.beam_size:
        raise ConfigurationError(
            f"{num_best} best translations were asked for, but beam_size is {config.beam_size}: raise it to at least "
            f"{num_best}."
        )
    rules = Rules.of(source, config, prefixes)
    found: list[list[Hypothesis]] = [[] for _ in rules.limits]
    beams = BeamState.begin(len(source), config.beam_size, filled=1)
    state = model.start(source)
    rows = torch.arange(len(source), device="cpu").repeat_interleave(config.beam_size)
    position = 0
    if trace is not None:
        trace.begin(len(source), config.penalty)
    while beams.sentences:
        logits, state = model.step(beams.last_ids(source.device), state.select(rows))
        candidates = continuations(beams, logits, rules, position)
        survivors = candidates.going_on(config.beam_size)
        for sentence, _, hypothesis in candidates.finished(beams, config, rules.limits):
            if len(found[sentence]) < config.beam_size:
                found[sentence].append(hypothesis)
        if trace is not None:
            trace.extend(beams, candidates, found)
        beams = survivors.extending(beams)
        kept = rows_to_keep(_unfinished(beams, found))
        beams, rows = beams.select(kept), state_rows(kept, survivors.rows)
        position += 1
    return [sorted(hypotheses, key=lambda each: -each.score)[:num_best] for hypotheses in found]


@dataclass(frozen=True)
class Continuations:
    """The C best continuations by one token of each sentence's hypotheses, best first."""

    rows: Int[Tensor, "B C"]
    """The row of the hypothesis that is extended; see `BeamState`."""
    ids: Int[Tensor, "B C"]
    token_log_probabilities: Float[Tensor, "B C"]

    @cached_property
    def any_ends(self) -> bool:
        """Whether any ends its sentence; mostly none does."""
        return eos_id in self.ids.flatten().tolist()

    def top(self, count: int) -> Continuations:
        """The best `count`."""
        return Continuations(self.rows[:, :count], self.ids[:, :count], self.token_log_probabilities[:, :count])

    def ranks_going_on(self, count: int) -> Int[Tensor, "B K"]:
        """The ranks of the best `count` that do not end their sentence."""
        return (self.ids == eos_id).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]

    def going_on(self, count: int) -> Continuations:
        """The best `count` that do not end their sentence."""
        if not self.any_ends:
            return self.top(count)
        ranks = self.ranks_going_on(count)
        found = (values.gather(1, ranks) for values in (self.rows, self.ids, self.token_log_probabilities))
        return Continuations(*found)

    def finished(
        self, beams: BeamState, config: SearchConfig, limits: Sequence[int]
    ) -> Iterator[tuple[int, int, Hypothesis]]:
        """Those among the best K that end their sentence; see `BeamState.finished`."""
        if not self.any_ends:
            return iter(())
        top = self.top(config.beam_size).extending(beams)
        return top.finished(ended(top), config.penalty, limits)

    def extending(self, beams: BeamState) -> BeamState:
        """The hypotheses that they lead to."""
        return beams.extended(self.ids, self.token_log_probabilities, self.rows)


def continuations(beams: BeamState, logits: Float[Tensor, "N V"], rules: Rules, position: int) -> Continuations:
    """The 2K best continuations of each sentence: enough that K remain when K of them end.

    Raises:
        ModelError: if the model's output is not a number.
    """
    required, count = rules.all_required(beams.sentences, position), 2 * beams.ids.shape[1]
    found = best_continuations(logits, beams.log_probabilities, required, rules.banned, count)
    check_found(found.has_nan)
    return Continuations(found.rows, found.ids, found.token_log_probabilities)


def ended(beams: BeamState) -> Bool[Tensor, "B K"]:
    """True where a hypothesis has just ended."""
    return (beams.ids[:, :, -1] == eos_id) & (beams.log_probabilities > -torch.inf)


def _unfinished(beams: BeamState, found: Sequence[Sequence[Hypothesis]]) -> list[bool]:
    """Which sentences are not done: those with a hypothesis to extend and fewer than K finished ones."""
    size = beams.ids.shape[1]
    best = beams.log_probabilities[:, 0].tolist()  # if beam 0 is empty, all are
    alive = [total > -torch.inf for total in best]
    return [alive[row] and len(found[sentence]) < size for row, sentence in enumerate(beams.sentences)]
