"""The beams of unfinished sentences, and the rows of the decoder state that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jointnmt.ops import Continuations, Hypotheses
from jointnmt.ops.transfer import send
from jointnmt.search.hypothesis import Hypothesis
from jointnmt.search.scoring import LengthPenalty
from jointnmt.text.special import bos_id, eos_id


@dataclass(frozen=True)
class BeamState:
    """K beams for each unfinished sentence, all t tokens long; always on the CPU.

    Row `b * K + k` of the decoder state belongs to beam k of the sentence in row b.
    """

    sentences: tuple[int, ...]
    """Index of each sentence in the caller's batch."""
    hypotheses: Hypotheses
    """Beams of the sentences."""

    @classmethod
    def begin(cls, num_sentences: int, num_beams: int, filled: int) -> BeamState:
        """Sentences before the first token; the first `filled` of their beams hold the empty hypothesis."""
        log_probabilities = torch.full((num_sentences, num_beams), -torch.inf, dtype=torch.float64, device="cpu")
        log_probabilities[:, :filled] = 0
        return cls(
            tuple(range(num_sentences)),
            Hypotheses(
                torch.full((num_sentences, num_beams, 1), bos_id, device="cpu"),
                torch.zeros((num_sentences, num_beams, 0), device="cpu"),
                log_probabilities,
            ),
        )

    def last_ids(self, device: torch.device) -> Int[Tensor, " N"]:
        """The newest token of every row, on the model's device."""
        return send(self.hypotheses.ids[:, :, -1].flatten(), device)

    def extended(self, ids: Int[Tensor, "B K"], token_log_probabilities: Float[Tensor, "B K"]) -> BeamState:
        """Every hypothesis one token longer."""
        rows = torch.arange(ids.numel(), device="cpu").view_as(ids)
        return replace(self, hypotheses=self.hypotheses.extended(Continuations(rows, ids, token_log_probabilities)))

    def without(self, beams: Bool[Tensor, "B K"]) -> BeamState:
        """A copy with these beams emptied."""
        log_probabilities = self.hypotheses.log_probabilities.masked_fill(beams, -torch.inf)
        return replace(self, hypotheses=self.hypotheses._replace(log_probabilities=log_probabilities))

    def select(self, rows: Sequence[int]) -> BeamState:
        """A copy with the sentences of these rows only, in this order."""
        if rows == list(range(len(self.sentences))):
            return self
        index = torch.tensor(rows, dtype=torch.long, device="cpu")
        return BeamState(
            tuple(self.sentences[row] for row in rows), Hypotheses(*(each[index] for each in self.hypotheses))
        )

    def ended(self) -> Bool[Tensor, "B K"]:
        """Mask of hypotheses that have just ended."""
        ids, _, log_probabilities = self.hypotheses
        return (ids[:, :, -1] == eos_id) & (log_probabilities > -torch.inf)

    def finished(
        self, ended: Bool[Tensor, "B K"], penalty: LengthPenalty, limits: Sequence[int]
    ) -> Iterator[tuple[int, int, Hypothesis]]:
        """Each hypothesis that has just ended, with its sentence's number and its beam.

        `limits` are the length limits of all sentences of the caller's batch.
        """
        rows, beams = ended.nonzero(as_tuple=True)
        found = zip(
            rows.tolist(),
            beams.tolist(),
            self.hypotheses.ids[rows, beams].tolist(),
            self.hypotheses.token_log_probabilities[rows, beams].tolist(),
            strict=True,
        )
        for row, beam, ids, tokens in found:
            sentence = self.sentences[row]
            yield sentence, beam, Hypothesis.scored(ids[1:-1], tokens, penalty, limits[sentence])


def rows_to_keep(keep: Sequence[bool]) -> list[int]:
    """Rows to keep; rows from the end take the places of dropped ones, so that as few as possible move."""
    remaining = sum(keep)
    tail = [row for row in range(remaining, len(keep)) if keep[row]]
    return [row if keep[row] else tail.pop() for row in range(remaining)]


def state_rows(sentences: Sequence[int], rows: Int[Tensor, "B K"]) -> Int[Tensor, " N"]:
    """Rows of the decoder state that belong to these sentences."""
    if sentences != list(range(rows.shape[0])):
        rows = rows[torch.tensor(sentences, dtype=torch.long, device="cpu")]
    return rows.flatten()
