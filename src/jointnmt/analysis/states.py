"""The hidden states of every layer of a frozen model, one vector for each piece of a sentence.

States are taken from the outputs of modules by forward hooks, without changes to the models. A state of encoder, PreNet
or decoder belongs to the piece at its position. A cell of the grid belongs to a pair of positions: the state of a
source piece is the mean of its cells over all target positions, that of a target piece the mean over all source
positions, begin and end marks included. The mean has no parameters and is the same for both sides and all layers; the
model's own reduction, trained for the last layer and target positions only, is given as one more layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jointnmt.data.batch import Batch
from jointnmt.errors import ModelError
from jointnmt.models import TranslationModel
from jointnmt.search.scoring import check_evaluating

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

EMBEDDING, INPUT, REDUCED = "embedding", "input", "reduced"
"""Names of layers without a number: the embeddings, scaled and with positions; the input of the first grid layer; the
output of the model's reduction."""


class State(NamedTuple):
    """One kind of hidden state."""

    stack: str
    """Stack: `embedding`, `encoder`, `decoder`, `prenet` or `grid`."""
    side: Side
    """Side whose pieces have this state."""
    layer: str
    """The number of the layer, from 1, or `EMBEDDING`, `INPUT`, `REDUCED`."""

    def __str__(self) -> str:
        return "-".join(dict.fromkeys(self))


@dataclass(frozen=True)
class _Tap:
    """Call of a module from which states are taken; taps of one module are its calls, in their order."""

    module: nn.Module
    states: tuple[State, ...]
    of_input: bool = False
    """Whether the states are of the module's first argument instead of its output."""


def states_of(model: TranslationModel) -> list[State]:
    """All states of a model: the embeddings of both sides, then stack by stack, from the bottom."""
    return _in_order(_taps(model))


@torch.no_grad()
def hidden_states(model: TranslationModel, batch: Batch) -> dict[State, Float[Tensor, "_ E"]]:
    """The states of the pieces of a batch, teacher-forced, in the order of `pieces`.

    The last layer of encoder, PreNet and decoder is taken after the final layer norm of the stack, if there is one; all
    others are the residual stream. A target piece's state is at the position where the model reads it. A layer that a
    stack lists several times has one state for each of its calls.

    Raises:
        RuntimeError: if the model does not call a module from which states are taken, or more often than its stacks
            list it.
        ValueError: if the model is in training mode.
    """
    check_evaluating(model)
    found: dict[State, Tensor] = {}
    taps = _taps(model)
    with ExitStack() as hooks:
        for module, of_input in dict.fromkeys((tap.module, tap.of_input) for tap in taps):
            calls = [tap.states for tap in taps if tap.module is module and tap.of_input == of_input]
            hooks.callback(_listen(module, of_input, calls, batch, found).remove)
        model(batch.source, batch.target_input)
    wanted = _in_order(taps)
    if missing := [str(state) for state in wanted if state not in found]:
        raise RuntimeError(f"the model did not call the modules that these states come from: {', '.join(missing)}")
    return {state: found[state] for state in wanted}


def piece_mask(batch: Batch, side: Side) -> Bool[Tensor, "B L"]:
    """True at pieces: neither padding nor a tag nor the mark that ends a source or begins a target input."""
    return batch.source_piece_mask if side == "source" else batch.target_piece_mask


def pieces(batch: Batch, side: Side) -> Int[Tensor, " N"]:
    """The ids of the pieces, sentence after sentence."""
    ids = batch.source if side == "source" else batch.target_input
    return ids[piece_mask(batch, side)]


def over_other_side(cells: Float[Tensor, "B S T *rest"], batch: Batch, side: Side) -> Float[Tensor, "B L *rest"]:
    """The mean of cells over the real positions of the other side."""
    axis, mask = (2, batch.target_mask[:, None]) if side == "source" else (1, batch.source_mask[:, :, None])
    mask = mask.reshape(*mask.shape, *[1] * (cells.dim() - 3))
    # Cells of padding may be NaN, so they are replaced instead of multiplied by zero.
    return torch.where(mask, cells, 0.0).sum(axis) / mask.sum(axis)


def _taps(model: TranslationModel) -> list[_Tap]:
    if not model.stacks():
        raise ModelError(
            f"The hidden states of a {type(model).__name__} are not defined: it has no stacks of layers for analyses "
            "(`TranslationModel.stacks`)."
        )
    embeddings = [(side, model.get_submodule(f"{side}_embedding")) for side in SIDES]
    taps = [_Tap(module, (State("embedding", side, EMBEDDING),)) for side, module in embeddings]
    for name, (layers, norm) in model.stacks().items():
        if name == "grid":
            taps.append(_Tap(layers[0], _of_sides(name, INPUT), of_input=True))
        taps += [_Tap(layer, _of_sides(name, str(i))) for i, layer in enumerate(layers, start=1)]
        if name == "grid":
            taps.append(_Tap(model.get_submodule("reduction"), (State(name, "target", REDUCED),)))
        elif norm is not None:  # the last state is taken after it
            taps[-1:] = [_Tap(layers[-1], ()), _Tap(norm, taps[-1].states)]
    return taps


def _of_sides(stack: str, layer: str) -> tuple[State, ...]:
    """The states of a layer: those of cells belong to both sides."""
    sides: tuple[Side, ...] = SIDES if stack == "grid" else ("target",) if stack == "decoder" else ("source",)
    return tuple(State(stack, side, layer) for side in sides)


def _in_order(taps: Sequence[_Tap]) -> list[State]:
    """The states, those of one stack and side together."""
    states = [state for tap in taps for state in tap.states]
    groups = list(dict.fromkeys((state.stack, state.side) for state in states))
    return sorted(states, key=lambda state: groups.index((state.stack, state.side)))


def _listen(
    module: nn.Module, of_input: bool, calls: Sequence[tuple[State, ...]], batch: Batch, found: dict[State, Tensor]
) -> Any:
    """Register a hook that copies the states of each call at once, since a model may reuse its memory."""
    remaining = iter(calls)

    def keep(passing: Any) -> None:
        x: Tensor = passing[0] if isinstance(passing, tuple) else passing
        states = next(remaining, () if of_input else None)
        if states is None:
            raise RuntimeError(f"the model calls a {type(module).__name__} more often than its stacks list it")
        for state in states:
            rows = over_other_side(x, batch, state.side) if x.dim() == 4 else x  # [B, S, T, E] -> [B, L, E]
            found[state] = rows[piece_mask(batch, state.side)].float()

    if of_input:  # only the first call is of the stack's input
        return module.register_forward_pre_hook(lambda _, arguments: keep(arguments))
    return module.register_forward_hook(lambda _, __, output: keep(output))
