"""Attention weights of one translation, as matrices for figures (`attention_figures`) and as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from jointnmt.models.interface import AttentionMaps
from jointnmt.text.special import BOS, EOS

By = Literal["mean", "layer", "head"]


@dataclass(frozen=True)
class View:
    """Selection of attention to show: means over layers and heads or each of them; all tokens or one."""

    by: By = "mean"
    source: int | None = None
    """Position of a source token, from 0, end mark included: only its row of source self-attention is shown, on a grid
    under each target token (Li et al. 2020, Figure 5, left). None: all rows, on a grid averaged over target
    positions."""
    target: int | None = None
    """Position of a target token as read by the decoder, 0 being the begin mark, to show its row of target
    self-attention (Figure 5, right)."""


@dataclass(frozen=True)
class Panel:
    """One matrix of attention weights; rows are queries, columns keys, and a row sums to 1."""

    title: str
    layer: int | None
    """Layer, from 1; None: averaged, see `averaged_over`."""
    head: int | None
    averaged_over: str
    row_axis: str
    rows: tuple[str, ...]
    column_axis: str
    columns: tuple[str, ...]
    weights: Float[np.ndarray, "rows columns"]

    @property
    def subtitle(self) -> str:
        """Layer and head, and the axes that are averaged over."""
        places = [f"{name} {value}" for name, value in (("layer", self.layer), ("head", self.head)) if value]
        return ", ".join([*places, *([f"mean over {self.averaged_over}"] if self.averaged_over else [])])

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return {**asdict(self), "weights": _rounded(self.weights)}


class _Axis(NamedTuple):
    name: str
    tokens: tuple[str, ...]


class _Kind(NamedTuple):
    """One kind of attention in all layers and heads: `[layers, heads, rows, columns]`, or on a grid
    `[layers, heads, other, rows, columns]`, `other` being the axis that is not attended along."""

    title: str
    layers: Sequence[Tensor]
    rows: _Axis
    columns: _Axis
    chosen: int | None = None
    """Index of the row to show; None: all rows."""
    other: _Axis | None = None


def self_attention_tokens(
    source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of source and target self-attention: source pieces and end mark; begin mark and target pieces."""
    return (*source_pieces, EOS), (BOS, *target_pieces)


def attention_panels(
    attn_weights: AttentionMaps, source_pieces: Sequence[str], target_pieces: Sequence[str], view: View = View()
) -> list[Panel]:
    """The attention matrices of one teacher-forced translation.

    `attn_weights` are those of a batch of this one sentence pair. The pieces are given without begin and end marks,
    which are added here: rows of an alignment are the predicted tokens, pieces and end mark; target self-attention is
    among the tokens read, begin mark and pieces. An alignment is always shown whole, whatever token is chosen.

    Raises:
        ValueError: if `attn_weights` do not belong to a single sentence pair of these lengths.
    """
    source_tokens, read_tokens = self_attention_tokens(source_pieces, target_pieces)
    source, read = _Axis("source", source_tokens), _Axis("target read", read_tokens)
    predicted = _Axis("target predicted", (*target_pieces, EOS))
    kinds = [
        _Kind("Alignment (cross-attention)", attn_weights.cross, predicted, source),
        _Kind("Encoder self-attention", attn_weights.encoder, source, source, view.source),
        _Kind("Decoder self-attention", attn_weights.decoder, read, read, view.target),
        _Kind("PreNet self-attention", attn_weights.prenet, source, source, view.source),
        _Kind("Source attention", attn_weights.source, source, source, view.source, read),
        _Kind("Target attention", attn_weights.target, read, read, view.target, source),
    ]
    panels = [panel for kind in kinds if kind.layers for panel in _kind_panels(kind, view.by)]
    if attn_weights.alignment is not None and not attn_weights.cross:
        reduction = ("Alignment (reduction)", None, None, "features", *predicted, *source)
        panels.insert(0, Panel(*reduction, _numbers(attn_weights.alignment)))
    for panel in panels:
        if panel.weights.shape != (len(panel.rows), len(panel.columns)):
            expected = f"{len(panel.rows)} rows and {len(panel.columns)} columns"
            raise ValueError(f"{panel.title} has the shape {panel.weights.shape}, but its pieces need {expected}")
    return panels


def attention_numbers(
    attn_weights: AttentionMaps, source_pieces: Sequence[str], target_pieces: Sequence[str], view: View = View()
) -> dict[str, Any]:
    """The panels as JSON-compatible values, and the attention along both axes of a grid, not averaged over the other.

    `source_attention[t][s]` are the weights of source position s over the source under target position t;
    `target_attention[s][t]` those of target position t over the target read so far, under source position s. Both are
    averaged over layers and heads.
    """
    panels = attention_panels(attn_weights, source_pieces, target_pieces, view)
    values: dict[str, Any] = {"source": list(source_pieces), "target": list(target_pieces)}
    values["panels"] = [panel.plain() for panel in panels]
    for name, layers in (("source_attention", attn_weights.source), ("target_attention", attn_weights.target)):
        if layers:
            values[name] = _rounded(np.mean([_numbers(layer).mean(0) for layer in layers], 0))
    return values


def _kind_panels(kind: _Kind, by: By) -> Iterator[Panel]:
    weights = np.stack([_numbers(layer) for layer in kind.layers])
    title, rows, averaged_over = kind.title, kind.rows, []
    if kind.chosen is not None:
        title += f" of “{rows.tokens[kind.chosen]}”"
        weights = weights[..., kind.chosen, :]  # [layers, heads, columns] or [layers, heads, other, columns]
        rows = kind.other._replace(name=f"under {kind.other.name}") if kind.other else _Axis("", ("",))
        weights = weights if kind.other else weights[:, :, None]
    elif kind.other:
        averaged_over = [f"{kind.other.name.split()[0]} positions"]
        weights = weights.mean(2)

    def panel(layer: int | None, head: int | None, over: Sequence[str], matrix: Float[np.ndarray, "_ _"]) -> Panel:
        return Panel(title, layer, head, ", ".join([*over, *averaged_over]), *rows, *kind.columns, matrix)

    if by == "mean":
        yield panel(None, None, ["layers", "heads"], weights.mean((0, 1)))
        return
    for layer, heads in enumerate(weights, start=1):
        if by == "layer":
            yield panel(layer, None, ["heads"], heads.mean(0))
            continue
        for head, matrix in enumerate(heads, start=1):
            yield panel(layer, head, [], matrix)


def _numbers(weights: Tensor) -> Float[np.ndarray, "*axes"]:
    """The weights of the only sentence of the batch."""
    if weights.shape[0] != 1:
        raise ValueError(f"expected a batch of one sentence, got {weights.shape[0]}")
    return weights[0].detach().float().cpu().numpy()


def _rounded(weights: Float[np.ndarray, "*axes"]) -> Any:
    return weights.astype(float).round(6).tolist()
