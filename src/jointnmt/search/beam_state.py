"""The beams of unfinished sentences, and the rows of the decoder state that belong to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
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

    def select(self, rows: Sequence[int]) -> BeamState:
        """A copy with the sentences of these rows only, in this order."""
        if rows == list(range(len(self.sentences))):
            return self
        index = torch.tensor(rows, dtype=torch.long, device="cpu")
        return BeamState(
            tuple(self.sentences[row] for row in rows), Hypotheses(*(each[index] for each in self.hypotheses))
        )

    def finished(
        self, candidates: Continuations, penalty: LengthPenalty, limits: Sequence[int]
    ) -> Iterator[tuple[int, int, Hypothesis]]:
        """Candidates among the K first that end their sentence, each with the sentence's number and its beam.

        `limits` are the length limits of all sentences of the caller's batch. Computed with lists: nearly every
        position of a large batch has some, and for so few, tensors are several times slower.
        """
        size = self.hypotheses.log_probabilities.shape[1]
        first = zip(*(values[:, :size].tolist() for values in candidates), strict=True)
        ending = [
            (row, continued, end)
            for row, (of_row, ids, ends) in enumerate(first)
            if eos_id in ids
            for continued, token, end in zip(of_row, ids, ends, strict=True)
            if token == eos_id
        ]
        index = torch.tensor([continued for _, continued, _ in ending], dtype=torch.long, device="cpu")
        of_each = (each.flatten(0, 1).index_select(0, index).tolist() for each in self.hypotheses)
        for (row, continued, end), ids, tokens, total in zip(ending, *of_each, strict=True):
            if total + end > -math.inf:
                sentence = self.sentences[row]
                hypothesis = Hypothesis.scored(ids[1:], [*tokens, end], penalty, limits[sentence])
                yield sentence, continued % size, hypothesis


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
