"""Several positions of beam search in one call of the kernels.

Between two positions of a few rows, Python takes longer than the kernels of a position. Until a sentence settles or a
cache is full, nothing changes but tokens and the rows that they continue, which the kernels see to by themselves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jointnmt.ops.attention import OwnSlots
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
    """How a decoder state computes its next positions by kernels alone, until its caches are full."""

    recorded: Recorded
    """The kernels of a position."""
    table: Float[Tensor, "V E"]
    """Embeddings of the target, in float32."""
    scale: float
    """By which they are multiplied."""
    positions: Float[Tensor, "P E"]
    """What is added to them at each of the next positions, in float32."""
    own: OwnSlots
    slots: Int[Tensor, "N t"]
    """Those of each row's past."""
    used: int
    """Slots of each sentence."""

    def _argument(self, slots: Sequence[Tensor]) -> DecoderArgument:
        """As the kernels take it; `slots` are two buffers for those of each row, the first has them."""
        recording, given = self.recorded.recording, self.recorded.given
        return DecoderArgument(
            recording.program, len(recording.kernels), self.table.data_ptr(), self.positions.data_ptr(), self.scale,
            given.data_ptr(), given.dtype == torch.bfloat16, given.shape[-1], ctypes.addressof(self.own.structure),
            (ctypes.c_void_p * 2)(*(each.data_ptr() for each in slots)), self.slots.shape[1], self.used,
        )  # fmt: skip


class Advanced(NamedTuple):
    """What several positions of beam search lead to."""

    positions: int
    """How many were computed."""
    before: Hypotheses
    """The hypotheses that the last of them continues."""
    step: BeamStep
    """The last of them; only there may a sentence have settled."""
    slots: Int[Tensor, "N t"]
    """Those of the past of each row of the decoder state, which are the hypotheses of `before`."""


def advance_positions(
    decoder: MultiStepDecoder, hypotheses: Hypotheses, required: Int[Tensor, "P B"], banned: Sequence[int], end: int
) -> Advanced:
    """Continue the K hypotheses of each sentence as `advance_beams` does, until a sentence may have settled.

    Args:
        decoder: its rows are those of the hypotheses.
        hypotheses: so far; their last tokens have not been read yet.
        required: see `restrict`, at each of the next positions, of which there are no more than the decoder has room
            for; -1: None.
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
        raise ValueError(f"{least} is no token")
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
    """The hypotheses after each position, written to two buffers in turn."""

    def __init__(self, hypotheses: Hypotheses, most: int) -> None:
        """Begin with hypotheses, which are kept; there will be at most so many positions."""
        self.first = Hypotheses(*(each.contiguous() for each in hypotheses))
        self._sentences, self._beams, self._tokens = hypotheses.token_log_probabilities.shape
        self.room = [allocate_hypotheses(self._sentences, self._beams, self._tokens + most) for _ in range(2)]

    def after(self, positions: int) -> Hypotheses:
        """Those after the last position, or the one before it."""
        if not positions:
            return self.first
        tokens = self._tokens + positions
        ids, log_probabilities, totals = self.room[(positions - 1) % 2]
        return Hypotheses(self._first(ids, tokens + 1), self._first(log_probabilities, tokens), totals)

    def _first(self, room: Tensor, numbers: int) -> Tensor:
        """The first of the room's numbers, so many of each beam."""
        return room.as_strided((self._sentences, self._beams, numbers), (self._beams * numbers, numbers, 1))
