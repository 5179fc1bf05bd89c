"""The hidden states of every layer of a frozen model, one vector for each piece of a sentence.

States are taken where modules of the model give them back, by forward hooks, so the models know nothing of it. Those of
encoder, PreNet and decoder stand at a position, and so belong to its piece. A cell of the grid stands at a pair of
positions: the state of a source piece is the mean over all target positions of its cells, that of a target piece the
mean over all source positions of its column, end and begin marks included. The mean has no weights of its own, and is
the same for either side and every layer; the model's own reduction, trained for the last layer and for target positions
only, is there as one more layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jointnmt.data.batch import Batch
from jointnmt.models import TranslationModel
from jointnmt.models.reformer import Reformer
from jointnmt.models.transformer import Transformer
from jointnmt.text.special import bos_id, eos_id, pad_id

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

EMBEDDING, INPUT, REDUCED = "embedding", "input", "reduced"
"""Layers that have no number: the embeddings, scaled and with positions; the grid that enters the first layer; what the
model's own reduction makes of the last one."""


class State(NamedTuple):
    """One kind of hidden state."""

    stack: str
    """`embedding`, `encoder`, `decoder`, `prenet` or `grid`."""
    side: Side
    """Whose pieces have such a state."""
    layer: str
    """The number of the layer, from 1, or `EMBEDDING`, `INPUT`, `REDUCED`."""

    def __str__(self) -> str:
        return "-".join(dict.fromkeys(self))


@dataclass(frozen=True)
class _Tap:
    """Where a state can be had."""

    state: State
    module: nn.Module
    of_input: bool = False
    """Whether the state is the module's first argument, not its result."""


def states_of(model: TranslationModel) -> list[State]:
    """All states of a model: the embeddings of either side, then stack by stack, from below."""
    return [tap.state for tap in _taps(model)]


@torch.no_grad()
def hidden_states(model: TranslationModel, batch: Batch) -> dict[State, Float[Tensor, "_ E"]]:
    """The states of the pieces of a batch, teacher-forced, in the order that `pieces` has.

    The last layer of encoder, PreNet and decoder is given after the layer norm that ends the stack, if there is one;
    all others are the residual stream. A target piece's state is at the position where the model reads it.

    Raises:
        RuntimeError: if the model does not call one of the modules that states are taken from.
    """
    found: dict[State, Tensor] = {}
    taps = _taps(model)
    with ExitStack() as hooks:
        for tap in taps:
            hooks.callback(_listen(tap, batch, found).remove)
        model(batch.source, batch.target_input)
    if missing := [str(tap.state) for tap in taps if tap.state not in found]:
        raise RuntimeError(f"the model did not call the modules that these states come from: {', '.join(missing)}")
    return found


def piece_mask(batch: Batch, side: Side) -> Bool[Tensor, "B L"]:
    """True at pieces: neither padding nor the mark that ends a source or begins a target input."""
    ids, mark = (batch.source, eos_id) if side == "source" else (batch.target_input, bos_id)
    return (ids != pad_id) & (ids != mark)


def pieces(batch: Batch, side: Side) -> Int[Tensor, " N"]:
    """The ids of the pieces, sentence after sentence."""
    ids = batch.source if side == "source" else batch.target_input
    return ids[piece_mask(batch, side)]


def over_other_side(cells: Float[Tensor, "B S T *rest"], batch: Batch, side: Side) -> Float[Tensor, "B L *rest"]:
    """The mean of cells over the real positions of the other side."""
    axis, mask = (2, batch.target_mask[:, None]) if side == "source" else (1, batch.source_mask[:, :, None])
    mask = mask.reshape(*mask.shape, *[1] * (cells.dim() - 3))
    # Cells of padding may hold anything, so they are replaced, not multiplied by zero.
    return torch.where(mask, cells, 0.0).sum(axis) / mask.sum(axis)


def _taps(model: TranslationModel) -> list[_Tap]:
    match model:
        case Transformer():
            stacks = [
                *_sequence("encoder", "source", model.encoder.layers, model.encoder.norm),
                *_sequence("decoder", "target", model.layers, model.norm),
            ]
        case Reformer():
            prenet = model.prenet
            stacks = [] if prenet is None else [*_sequence("prenet", "source", prenet.layers, prenet.norm)]
            for side in SIDES:
                stacks.append(_Tap(State("grid", side, INPUT), model.layers[0], of_input=True))
                stacks += [_Tap(State("grid", side, str(i)), layer) for i, layer in enumerate(model.layers, start=1)]
            stacks.append(_Tap(State("grid", "target", REDUCED), model.reduction))
        case _:
            raise TypeError(f"it is not known where the hidden states of a {type(model).__name__} are")
    return [
        _Tap(State("embedding", "source", EMBEDDING), model.source_embedding),
        _Tap(State("embedding", "target", EMBEDDING), model.target_embedding),
        *stacks,
    ]


def _sequence(stack: str, side: Side, layers: Iterable[nn.Module], norm: nn.Module) -> Iterator[_Tap]:
    """The layers of a stack; the last one's state is taken after the norm that follows it."""
    for number, module in enumerate([*list(layers)[:-1], norm], start=1):
        yield _Tap(State(stack, side, str(number)), module)


def _listen(tap: _Tap, batch: Batch, found: dict[State, Tensor]) -> Any:
    """Keep what passes a tap; at once, for a model may go on computing in the same memory."""
    side = tap.state.side
    mask = piece_mask(batch, side)

    def keep(passing: Any) -> None:
        x: Tensor = passing[0] if isinstance(passing, tuple) else passing
        rows = over_other_side(x, batch, side) if x.dim() == 4 else x  # [B, S, T, E] -> [B, L, E]
        found[tap.state] = rows[mask].float()

    if tap.of_input:
        return tap.module.register_forward_pre_hook(lambda _, arguments: keep(arguments))
    return tap.module.register_forward_hook(lambda _, __, output: keep(output))
