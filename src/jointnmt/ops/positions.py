"""Several positions of beam search in one call of the kernels.

For few rows, the Python code between two positions takes longer than the kernels of a position. Until a sentence
settles or a cache is full, only tokens and the rows that they continue change, which the kernels handle by themselves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jointnmt.ops.masks import OwnSlots
from jointnmt.ops.native.calls import DecoderArgument, Restriction, call
from jointnmt.ops.replay import Recorded
from jointnmt.ops.search import (
    ANY_SETTLED,
    HAS_NAN,
    BeamStep,
    Hypotheses,
    allocate_hypotheses,
    allocate_step,
    check_tokens,
    pointers,
)


@dataclass(frozen=True)
class MultiStepDecoder:
    """Inputs of the kernels that compute the next positions of a decoder state, until its caches are full."""

    recorded: Recorded
    """The kernels of a position."""
    table: Float[Tensor, "V E"]
    """Target embeddings, in float32."""
    scale: float
    """Scale applied to target embeddings, sqrt(E)."""
    positions: Float[Tensor, "P E"]
    """Positional encodings of the next positions, in float32."""
    own: OwnSlots
    slots: Int[Tensor, "N t"]
    """Cache slots of each row's past."""
    used: int
    """Number of slots in use for each sentence."""

    def _argument(self, slots: Sequence[Tensor]) -> DecoderArgument:
        """The kernels' `Decoder`; `slots` are two buffers for the slots of each row, of which the first is filled."""
        recording, given = self.recorded.recording, self.recorded.given
        return DecoderArgument(
            recording.program, len(recording.kernels), self.table.data_ptr(), self.positions.data_ptr(), self.scale,
            given.data_ptr(), given.dtype == torch.bfloat16, given.shape[-1], ctypes.addressof(self.own.structure),
            (ctypes.c_void_p * 2)(*(each.data_ptr() for each in slots)), self.slots.shape[1], self.used,
        )  # fmt: skip


class Advanced(NamedTuple):
    """The result of several positions of beam search."""

    positions: int
    """Number of positions computed."""
    before: Hypotheses
    """Hypotheses that the last position continues."""
    step: BeamStep
    """The last position, the only one at which a sentence may have settled."""
    slots: Int[Tensor, "N t"]
    """Cache slots of the past of each row of the decoder state; its rows are the hypotheses of `before`."""


def advance_positions(
    decoder: MultiStepDecoder, hypotheses: Hypotheses, required: Int[Tensor, "P B"], banned: Sequence[int], end: int
) -> Advanced:
    """Continue the K hypotheses of each sentence as `advance_beams` does, until a sentence may have settled.

    Args:
        decoder: decoder state, with one row for each hypothesis.
        hypotheses: beams so far; the decoder has not read their last tokens yet.
        required: as in `restrict`, -1 for None, at each of the next positions; no more than the decoder has room for.
        banned: see `restrict`.
        end: the token that ends a sentence.

    Raises:
        MemoryError: if there is no memory left.
        ValueError: if one of `required` or `banned` is not a token, or sizes differ.
    """
    sentences, beams, length = hypotheses.token_log_probabilities.shape
    (rows, columns), most = decoder.slots.shape, len(required)
    logits = decoder.recorded.recording.aimed(sentences).view(rows, -1)
    least, largest = map(int, required.aminmax())
    if least < -1:
        raise ValueError(f"{least} is not a token")
    check_tokens([max(0, largest)], banned, logits.shape[1])
    if logits.shape[1] > len(decoder.table) or required.shape[1] != sentences or most > len(decoder.positions):
        raise ValueError(f"{len(decoder.table)} embeddings, {most} positions, {required.shape[1]} sentences do not fit")
    slots = torch.empty(2, rows * (columns + most), dtype=torch.long, device="cpu")
    slots[0, : rows * columns] = decoder.slots.flatten()
    buffers = _DoubleBuffer(hypotheses, most)
    candidates, ranks, continued = allocate_step(sentences, beams)
    never, computed = (ctypes.c_int64 * len(banned))(*banned), ctypes.c_int64()
    found = call(
        "advance_positions", logits, sentences, beams, logits.shape[1], logits, logits.stride(0), length, most,
        ctypes.byref(decoder._argument(list(slots))), pointers(buffers.first),
        ctypes.byref(Restriction(required.data_ptr(), ctypes.addressof(never), len(banned), end)),
        pointers(candidates), ranks, continued, pointers([*buffers.room[0], *buffers.room[1]]), ctypes.byref(computed),
    )  # fmt: skip
    done = computed.value
    has_nan, any_settled = bool(found & HAS_NAN), bool(found & ANY_SETTLED)
    step = BeamStep(candidates, ranks, continued, buffers.after(done), has_nan, any_settled)
    return Advanced(done, buffers.after(done - 1), step, slots[done % 2, : rows * (columns + done)].view(rows, -1))


class _DoubleBuffer:
    """Hypotheses after each position, written to two buffers alternately."""

    def __init__(self, hypotheses: Hypotheses, most: int) -> None:
        """Start from `hypotheses`, which are not overwritten, with room for `most` positions."""
        self.first = Hypotheses(*(each.contiguous() for each in hypotheses))
        self._sentences, self._beams, self._tokens = hypotheses.token_log_probabilities.shape
        self.room = [allocate_hypotheses(self._sentences, self._beams, self._tokens + most) for _ in range(2)]

    def after(self, positions: int) -> Hypotheses:
        """Hypotheses after so many positions: the last position written, or the one before it."""
        if not positions:
            return self.first
        tokens = self._tokens + positions
        ids, log_probabilities, totals = self.room[(positions - 1) % 2]
        return Hypotheses(self._first(ids, tokens + 1), self._first(log_probabilities, tokens), totals)

    def _first(self, room: Tensor, numbers: int) -> Tensor:
        """View of the first elements of `room`, `numbers` for each beam."""
        return room.as_strided((self._sentences, self._beams, numbers), (self._beams * numbers, numbers, 1))
