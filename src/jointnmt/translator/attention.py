"""The attention weights of one translation."""

from __future__ import annotations

from typing import NamedTuple

import torch

from jointnmt.data.batch import Batch
from jointnmt.errors import DataError
from jointnmt.models import AttentionMaps
from jointnmt.translator.preprocessing import Line
from jointnmt.translator.translator import Translator


class AttentionTrace(NamedTuple):
    """All attention weights of one sentence pair, teacher-forced."""

    attn_weights: AttentionMaps
    """Of a batch of this one pair."""
    source_pieces: list[str]
    """Without the end mark."""
    target_pieces: list[str]
    """Without begin and end mark."""


@torch.no_grad()
def attend(translator: Translator, source: str, target: str, origin: str = "--source") -> AttentionTrace:
    """The attention weights of a sentence and its given translation.

    Raises:
        ConfigurationError: if it is an ensemble.
        DataError: naming `origin`, if one of the two is empty, or the source is too long for the model.
    """
    segmentation, model = translator.segmentation, translator.only_model()
    sentences = translator.preprocessor().encode([Line(1, origin, source, target)])[0]
    if not sentences or not sentences[0].target:
        raise DataError(f"{origin}: there is nothing to draw: the source or its translation is empty.")
    source_ids, target_ids = sentences[0].source, sentences[0].target
    attn_weights = AttentionMaps()
    batch = Batch.collate([source_ids], [target_ids]).to(translator.device)
    model(batch.source, batch.target_input, attn_weights)
    pieces = [segmentation.source.piece(i) for i in source_ids], [segmentation.target.piece(i) for i in target_ids]
    return AttentionTrace(attn_weights, *pieces)
