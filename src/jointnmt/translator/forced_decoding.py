"""Alignments and gates of given translations, by one teacher-forced pass over each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jointnmt.data.batch import Batch
from jointnmt.models import AttentionMaps, TranslationModel
from jointnmt.models.gates import GateMeans, gate_means, plain_means
from jointnmt.models.interface import AttentionPart
from jointnmt.text.special import num_tokens
from jointnmt.translator.preprocessing import EncodedSentence

ROWS = 16
"""Most translations per pass, as cross-attention and gates of all layers are kept."""


class ForcedDecoding(NamedTuple):
    """The alignment and the gates of one translation; None: not asked for."""

    alignment: Float[Tensor, "T S"] | None = None
    """Weight of each source token for each target token, end marks included; a row sums to 1. On the CPU."""
    gates: GateMeans | None = None
    """The mean gates of lexical shortcuts; empty without them."""


@torch.no_grad()
def force_decode(
    model: TranslationModel, rows: Sequence[tuple[EncodedSentence, Sequence[int]]], wanted: frozenset[AttentionPart]
) -> list[ForcedDecoding]:
    """Alignments and gates, if `wanted`, of sentences and the ids of their translations, by teacher forcing."""
    device, forced = next(model.parameters()).device, []
    for start in range(0, len(rows), ROWS):
        some = rows[start : start + ROWS]
        batch = Batch.collate([sentence.source for sentence, _ in some], [ids for _, ids in some]).to(device)
        attn_weights = AttentionMaps(wanted=wanted)
        model(batch.source, batch.target_input, attn_weights)
        alignments = attn_weights.require_alignment().float().cpu() if "alignment" in wanted else None
        means = gate_means(attn_weights, batch.source_mask, batch.target_mask)
        forced += [
            ForcedDecoding(
                None if alignments is None else alignments[number, : num_tokens(ids), : sentence.source_tokens],
                plain_means(means, number) if "gates" in wanted else None,
            )
            for number, (sentence, ids) in enumerate(some)
        ]
    return forced
