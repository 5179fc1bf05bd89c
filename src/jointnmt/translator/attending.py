"""All attention of one translation."""

from __future__ import annotations

from typing import NamedTuple

import torch

from jointnmt.data.batch import Batch
from jointnmt.errors import DataError
from jointnmt.models import AttentionMaps
from jointnmt.translator.parts import Line, Preparation
from jointnmt.translator.translator import Translator


class Attended(NamedTuple):
    """What a model looked at while it read a sentence with its translation, teacher-forced."""

    attn_weights: AttentionMaps
    """Of a batch of this one pair."""
    source_pieces: list[str]
    """Without the end mark."""
    target_pieces: list[str]
    """Without begin and end mark."""


@torch.no_grad()
def attend(translator: Translator, source: str, target: str, origin: str = "--source") -> Attended:
    """Read one sentence with a given translation.

    Raises:
        DataError: naming `origin`, if one of the two is empty, or the source is longer than the model takes.
    """
    segmentation = translator.segmentation
    preparation = Preparation(segmentation, translator.experiment.model.max_length)
    parts = preparation.parts([Line(1, origin, source, target)])[0]
    if not parts or not parts[0].target:
        raise DataError(f"{origin}: there is nothing to draw: the source or its translation is empty.")
    source_ids, target_ids = parts[0].source[:-1], parts[0].target
    attn_weights = AttentionMaps()
    batch = Batch.collate([source_ids], [target_ids]).to(translator.device)
    translator.trained(batch.source, batch.target_input, attn_weights)
    pieces = [segmentation.source.piece(i) for i in source_ids], [segmentation.target.piece(i) for i in target_ids]
    return Attended(attn_weights, *pieces)
