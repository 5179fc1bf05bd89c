"""The attention weights of one translation."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jointnmt.data.batch import Batch
from jointnmt.errors import DataError
from jointnmt.models import AttentionMaps
from jointnmt.text.special import EOS
from jointnmt.translator.inference import Inference
from jointnmt.translator.pairs import check_tokens, encoded_pair

COLOUR = "31, 119, 180"
"""RGB colour of a weight of 1; smaller weights are lighter."""


class AttentionTrace(NamedTuple):
    """All attention weights of one sentence pair, teacher-forced."""

    attn_weights: AttentionMaps
    """Weights of a batch of this one pair."""
    source_pieces: list[str]
    """Source pieces, without the end mark."""
    target_pieces: list[str]
    """Target pieces, without begin and end mark."""
    translation: str
    """The translation as text."""

    @property
    def alignment(self) -> Float[Tensor, "T S"]:
        """Weight of each source token for each target token, end marks last; a row sums to 1."""
        return self.attn_weights.require_alignment()[0].float().cpu()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' '.join(self.source_pieces)} -> {' '.join(self.target_pieces)}>"

    def _repr_html_(self) -> str:
        """The alignment as a table for notebooks: each cell shows its weight, darker for a greater one."""
        columns, rows = ([*pieces, EOS] for pieces in (self.source_pieces, self.target_pieces))
        head = "".join(f'<th style="text-align:center">{escape(piece)}</th>' for piece in columns)
        lines = [
            f'<tr><th style="text-align:right">{escape(piece)}</th>{"".join(map(_cell, weights))}</tr>'
            for piece, weights in zip(rows, self.alignment.tolist(), strict=True)
        ]
        return (
            f"<table><caption>alignment: weight of each source piece (columns) for each target piece (rows)</caption>"
            f"<tr><td></td>{head}</tr>{''.join(lines)}</table>"
        )


@torch.no_grad()
def attend(
    translator: Inference,
    source: str,
    target: str | None = None,
    origin: str = "source",
    most_tokens: int | None = None,
) -> AttentionTrace:
    """The attention weights of a sentence and its translation.

    Args:
        translator: a trained model.
        source: the sentence.
        target: its translation; None: the model's own, in the pieces that search found.
        origin: name of the source in error messages.
        most_tokens: most tokens of either text, end mark included; None: no limit.

    Raises:
        ConfigurationError: if the translator is an ensemble.
        DataError: if one of the two is empty or has more than `most_tokens` tokens, or the source is too long for the
            model.
        TypeError: if source or target is not a `str`.
    """
    if not isinstance(source, str) or not isinstance(target, str | None):
        raise TypeError("attention takes one text and its translation, not several: give a str of each")
    segmentation, model = translator.segmentation, translator.only_model()
    sentence, text = encoded_pair(translator, source, target, most_tokens, origin)
    check_tokens("translation", sentence.target_tokens, most_tokens)
    if not sentence.target:
        raise DataError(f"The translation of the {origin} is empty: there is nothing to look into.")
    attn_weights = AttentionMaps()
    batch = Batch.collate([sentence.source], [sentence.target]).to(translator.device)
    model(batch.source, batch.target_input, attn_weights)
    source_pieces = [segmentation.source.piece(i) for i in sentence.source]
    target_pieces = [segmentation.target.piece(i) for i in sentence.target]
    return AttentionTrace(attn_weights, source_pieces, target_pieces, text)


def _cell(weight: float) -> str:
    """A cell of a table, readable on light and dark pages."""
    colour = "white" if weight > 0.5 else "black"
    style = f"text-align:center;color:{colour};background:linear-gradient(rgba({COLOUR},{weight:.2f}) 0 0),white"
    return f'<td style="{style}">{weight:.2f}</td>'
