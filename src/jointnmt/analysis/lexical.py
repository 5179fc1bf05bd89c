"""Lexical information in the states of a model: probe accuracy, similarity to embeddings, gates.

Emelin, Titov, Sennrich 2019, section 4. Everything is measured on text used neither for training nor for stopping.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from jointnmt.analysis.buckets import BucketValue, RatioTerms
from jointnmt.analysis.pieces import Grouping, SideText, any_piece, by_group, mean_piece
from jointnmt.analysis.probes import Probe
from jointnmt.analysis.states import (
    EMBEDDING,
    SIDES,
    Side,
    State,
    hidden_states,
    over_other_side,
    piece_mask,
    pieces,
    states_of,
)
from jointnmt.data.batch import Batch
from jointnmt.models import AttentionMaps, TranslationModel

ROWS = 16
"""Most sentences of a batch, as with gates the attention weights of all layers are kept."""

LexicalMeasure = Literal["accuracy", "similarity", "gate", "sparseness"]


@dataclass(frozen=True)
class LayerMeasurement:
    """One measured value with its interval."""

    measure: LexicalMeasure
    stack: str
    """Stack of a state, or place and kind of a gate, such as `encoder keys`."""
    side: Side
    """The side of the pieces."""
    layer: str
    grouping: Grouping
    value: BucketValue
    """The value; its bucket is the group."""


@dataclass(frozen=True)
class HeldOutText:
    """The text to measure on: sentence pairs, and the groups of their pieces on each side."""

    pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
    sides: Mapping[Side, SideText]
    tags: tuple[int, ...] = ()
    """Ids of tags at the beginning of sources: they belong to no group and are not measured."""


def measure_states(
    model: TranslationModel, text: HeldOutText, probes: Mapping[State, Probe], progress: Callable[[int], None]
) -> Iterator[LayerMeasurement]:
    """Accuracy of the probes on pieces, and by class on words, which count as recovered if any of their pieces is.

    Also the similarity of each layer to the embeddings: the cosine between the concatenated states and the concatenated
    embeddings (with scale and positions) of a sentence, averaged over sentences.
    """
    hits: dict[State, list[npt.NDArray[np.float64]]] = defaultdict(list)
    cosines: dict[State, list[float]] = defaultdict(list)
    for batch in _batches(model, text):
        states = hidden_states(model, batch)
        for state, rows in states.items():
            lengths = piece_mask(batch, state.side).sum(1).tolist()
            if state in probes:
                found = probes[state].hits(rows, pieces(batch, state.side))
                hits[state] += [part.double().cpu().numpy() for part in found.split(lengths)]
            embedded = states[State("embedding", state.side, EMBEDDING)]
            cosines[state] += _cosines(rows.split(lengths), embedded.split(lengths))
        progress(len(batch))
    for state in states_of(model):
        if state in probes:
            yield from _grouped("accuracy", state, hits[state], text.sides[state.side], any_piece)
        filled = np.array([[each] for each in cosines[state] if not np.isnan(each)])
        (value,) = (
            RatioTerms(filled, np.ones_like(filled)).ratios(["all"]) if len(filled) else [BucketValue("all", 0, None)]
        )
        yield LayerMeasurement("similarity", *state, "all", value)


def measure_gates(
    model: TranslationModel, text: HeldOutText, progress: Callable[[int], None]
) -> Iterator[LayerMeasurement]:
    """The gates of lexical shortcuts, from 0 (hidden state only) to 1 (lexical only), and their sparseness.

    Measured are the mean over features at each position, and Hoyer's sparseness over features; by class, a word has the
    mean over its pieces. Gates of the grid are given for pieces of both sides, averaged over the other side.
    """
    found: dict[tuple[LexicalMeasure, State], list[npt.NDArray[np.float64]]] = defaultdict(list)
    for batch in _batches(model, text):
        attn_weights = AttentionMaps()
        with torch.no_grad():
            model(batch.source, batch.target_input, attn_weights)
        for place, layers in attn_weights.gates.items():
            for number, gates in enumerate(layers, start=1):
                for state, rows in _of_sides(place, number, gates.float().mean(-1), batch):
                    found["gate", state] += rows
                for state, rows in _of_sides(place, number, hoyer(gates.float()), batch):
                    found["sparseness", state] += rows
        progress(len(batch))
    for (measure, state), values in found.items():
        yield from _grouped(measure, state, values, text.sides[state.side], mean_piece)


def hoyer(x: Float[Tensor, "*places n"]) -> Float[Tensor, "*places"]:
    """Hoyer's sparseness (2004): 0 if all values are equal, 1 if all but one are zero."""
    root = x.shape[-1] ** 0.5
    return (root - x.abs().sum(-1) / x.norm(dim=-1)) / (root - 1)


def _of_sides(
    place: str, number: int, values: Float[Tensor, "B *places 2"], batch: Batch
) -> Iterator[tuple[State, list[npt.NDArray[np.float64]]]]:
    """Values of each piece of each sentence, for keys and values and each side of the gates."""
    cells = values.dim() == 4
    sides: Sequence[Side] = SIDES if cells else ("target",) if place == "decoder" else ("source",)
    where = f"grid {place}" if cells else place
    for side in sides:
        mask = piece_mask(batch, side)
        rows = (over_other_side(values, batch, side) if cells else values)[mask]  # [N, 2]
        parts = rows.double().cpu().numpy()
        bounds = np.cumsum(mask.sum(1).cpu().numpy())[:-1]
        for kind, column in (("keys", 0), ("values", 1)):
            yield State(f"{where} {kind}", side, str(number)), np.split(parts[:, column], bounds)


def _grouped(
    measure: LexicalMeasure,
    state: State,
    values: Sequence[npt.NDArray[np.float64]],
    text: SideText,
    of_word: Callable[..., npt.NDArray[np.float64]],
) -> Iterator[LayerMeasurement]:
    for grouping, found in by_group(values, text, of_word).items():
        for value in found:
            yield LayerMeasurement(measure, *state, grouping, value)


def _cosines(states: Iterable[Tensor], embedded: Iterable[Tensor]) -> list[float]:
    """The cosine of each sentence; NaN for one without pieces."""
    pairs = [(a.flatten(), b.flatten()) for a, b in zip(states, embedded, strict=True)]
    first, second = (pad_sequence(list(side), batch_first=True) for side in zip(*pairs, strict=True))
    norms = first.norm(dim=1) * second.norm(dim=1)
    return ((first * second).sum(1) / norms).tolist()


def _batches(model: TranslationModel, text: HeldOutText) -> Iterator[Batch]:
    """The text in order, a few sentences at a time."""
    device = next(model.parameters()).device
    for start in range(0, len(text.pairs), ROWS):
        sources, targets = zip(*text.pairs[start : start + ROWS], strict=True)
        yield Batch.collate(sources, targets, tags=text.tags).to(device)
