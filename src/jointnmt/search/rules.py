"""Constraints on translations: maximum length, forced prefix, banned tokens, and a constraint of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from jointnmt.config import Config
from jointnmt.errors import DataError
from jointnmt.ops import restrict
from jointnmt.ops.transfer import send
from jointnmt.search.beam_state import BeamState
from jointnmt.search.scoring import LengthPenalty
from jointnmt.text.special import bos_id, eos_id, pad_id, unk_id

Constraint = Callable[[Int[Tensor, "N t"], Float[Tensor, "N V"]], Float[Tensor, "N V"]]
"""A constraint of one's own: what search goes by, given the ids of N hypotheses so far and the log-probabilities of
their next tokens.

It returns the log-probabilities, changed in place or not: minus infinity for a token that may not follow; other changes
count in scores. Nothing is renormalised, so scores stay those of rescoring. The ids have no begin mark: at first t is
0. The rows are the hypotheses that search extends, of all sentences of a batch; what is returned for one should depend
on it alone, or translations depend on their batch. Where a prefix or the maximum length leaves a single token, the
constraint is not asked. Tensors are on the model's device.
"""

MOST_LENGTH_PENALTY, MOST_LENGTH_OFFSET = 50, 1_000_000


class RulesConfig(Config):
    """Settings that beam search and sampling share: maximum length and scoring."""

    length_penalty: float = Field(
        1.0, ge=0, le=MOST_LENGTH_PENALTY, description="score = log-probability / length ^ `length_penalty`"
    )
    length_offset: float = Field(
        0.0,
        ge=0,
        le=MOST_LENGTH_OFFSET,
        description="o: the length counts as (o + length) / (o + 1); 5: GNMT (Wu et al. 2016)",
    )
    max_length_factor: float = Field(
        1.2, ge=0, le=1000, description="longest translation: factor · source tokens + offset"
    )
    max_length_offset: int = Field(10, ge=0, le=100_000, description="offset of the longest translation, in tokens")
    allow_unknown: bool = Field(True, description="whether `<unk>` may be generated")

    @property
    def penalty(self) -> LengthPenalty:
        """Length penalty for scoring hypotheses."""
        return LengthPenalty(self.length_penalty, self.length_offset)


def target_limit(source_tokens: int, config: RulesConfig) -> int:
    """Maximum number of target tokens of a sentence: `factor * source tokens + offset`, rounded down, at least 1.

    End marks count on both sides. The authors' framework uses the padded source length of the batch; here it is the
    sentence's own, so that a translation does not depend on its batch.
    """
    # The small term undoes rounding: 0.29 * 100 is 28.999999999999996 in floating point.
    return max(1, math.floor(config.max_length_factor * source_tokens + config.max_length_offset + 1e-9))


def target_limits(source: Int[Tensor, "B S"], config: RulesConfig) -> list[int]:
    """Maximum number of target tokens of each sentence of a batch.

    Raises:
        ValueError: if a source has no tokens, or padding before a token.
    """
    real = source != pad_id
    counts = torch.stack([real.sum(1), real.cumprod(1).sum(1)])  # all tokens, and tokens before any padding
    lengths, firsts = counts.tolist()
    for number, (length, first) in enumerate(zip(lengths, firsts, strict=True)):
        if not length:
            raise ValueError(f"source {number} of the batch has no tokens, not even the end mark")
        if length != first:
            raise ValueError(f"source {number} of the batch has padding before a token: it must be on the right")
    return [target_limit(length, config) for length in lengths]


def check_prefix(prefix: Sequence[int], limit: int, origin: str) -> None:
    """Check that a prefix leaves room for the end mark; `origin` names the sentence in the error.

    Raises:
        DataError: if the prefix is too long.
    """
    if len(prefix) >= limit:
        raise DataError(
            f"{origin}: the target prefix has {len(prefix)} pieces, but the translation may have at most {limit} "
            "tokens, end mark included. Shorten the prefix, or raise max_length_factor or max_length_offset where the "
            "search is configured."
        )


@dataclass(frozen=True)
class Rules:
    """The constraints of a batch: a length limit and a (possibly empty) prefix of each sentence, and what all share."""

    limits: tuple[int, ...]
    prefixes: tuple[tuple[int, ...], ...]
    banned: tuple[int, ...]
    constraint: Constraint | None = None

    @classmethod
    def of(
        cls,
        source: Int[Tensor, "B S"],
        config: RulesConfig,
        prefixes: Sequence[Sequence[int]] | None = None,
        constraint: Constraint | None = None,
    ) -> Self:
        """Rules for translating `source`; `prefixes` are the target ids that each translation has to begin with.

        Raises:
            DataError: if a prefix leaves no room for the end mark within its sentence's limit.
            ValueError: if there are not as many prefixes as sentences, a prefix has a begin, end or padding mark or a
                negative id, or a source has no tokens or padding before one.
        """
        limits = target_limits(source, config)
        prefixes = [()] * len(limits) if prefixes is None else prefixes
        if len(prefixes) != len(limits):
            raise ValueError(f"{len(prefixes)} prefixes for {len(limits)} sentences")
        for number, (prefix, limit) in enumerate(zip(prefixes, limits, strict=True)):
            if min(prefix, default=0) < 0:
                raise ValueError(f"the prefix of sentence {number} has a negative id: {list(prefix)}")
            if {pad_id, bos_id, eos_id} & set(prefix):
                raise ValueError(f"the prefix of sentence {number} has a begin, end or padding mark: {list(prefix)}")
            check_prefix(prefix, limit, f"sentence {number}")
        banned = (pad_id, bos_id) if config.allow_unknown else (pad_id, bos_id, unk_id)
        return cls(tuple(limits), tuple(tuple(prefix) for prefix in prefixes), banned, constraint)

    def required(self, sentence: int, position: int) -> int | None:
        """The only id allowed at this position: the prefix's, or the end mark at the limit; None if any is allowed."""
        if position < len(self.prefixes[sentence]):
            return self.prefixes[sentence][position]
        return eos_id if position == self.limits[sentence] - 1 else None

    def all_required(self, sentences: Sequence[int], position: int) -> list[int | None]:
        """`required` for each of these sentences."""
        return [self.required(sentence, position) for sentence in sentences]

    def required_from(self, sentences: Sequence[int], position: int, count: int) -> Int[Tensor, "P B"]:
        """`required` for each of these sentences at `count` positions from `position` on, with -1 for None."""
        found = torch.full((count, len(sentences)), -1, device="cpu")
        for column, sentence in enumerate(sentences):
            if len(self.prefixes[sentence]) > position:
                prefix = self.prefixes[sentence][position : position + count]
                found[: len(prefix), column] = torch.tensor(prefix, device="cpu")
            if (last := self.limits[sentence] - 1 - position) < count:
                found[last, column] = eos_id
        return found

    def apply(self, log_probabilities: Float[Tensor, "B K V"], beams: BeamState, position: int) -> None:
        """Apply the constraint, and set tokens that are not allowed to minus infinity: in place, not renormalised.

        Args:
            log_probabilities: log-probabilities of the next token.
            beams: the hypotheses so far.
            position: position of the next token.

        Raises:
            ValueError: if the constraint returns something else than log-probabilities.
        """
        required = self.all_required(beams.sentences, position)
        if self.constraint is not None:
            is_free = torch.tensor([[token is None] for token in required], device="cpu")
            is_extended = is_free & (beams.hypotheses.log_probabilities > -torch.inf)
            rows = is_extended.flatten().nonzero().squeeze(1)
            if len(rows):
                _constrain(self.constraint, beams.hypotheses.ids.flatten(0, 1)[rows, 1:], log_probabilities, rows)
        restrict(log_probabilities, required, self.banned)


def _constrain(
    constraint: Constraint, ids: Int[Tensor, "N t"], log_probabilities: Float[Tensor, "B K V"], rows: Int[Tensor, " N"]
) -> None:
    """Apply a constraint to these rows, in place, given the ids of each.

    Raises:
        ValueError: if the constraint returns something else than log-probabilities.
    """
    flat = log_probabilities.view(-1, log_probabilities.shape[-1])
    rows = send(rows, flat.device)
    given = flat[rows]
    found = constraint(send(ids, flat.device), given)
    if not isinstance(found, Tensor) or found.shape != given.shape or found.dtype != flat.dtype:
        is_other = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else repr(found)
        raise ValueError(f"the constraint returns {is_other}, but should return {flat.dtype} {list(given.shape)}")
    flat[rows] = found
