"""Cache slots: where the past of each hypothesis is stored in the cache of its sentence.

Every position of every hypothesis is written once, into a *slot* of its sentence's cache, and never moved when
hypotheses are reordered: a row only stores which slots are its past. On a CPU each row reads its own slots, in place;
elsewhere all rows of a sentence are scored against all its slots in one product, and slots outside a row's past are
masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jointnmt.ops import AttentionMask, OwnSlots
from jointnmt.ops.cuda_graph import captures
from jointnmt.ops.transfer import send

LARGEST_MASK = 2**25
"""Most elements of the self-attention mask, over all lines of a grid, for which shapes are fixed for CUDA graphs."""


class RowSlots:
    """The slots that each row may read in its sentence's caches, and the number of slots.

    The N rows are R adjacent rows of each of G sentences, and every layer's cache has the same slots. On a GPU all
    allocated slots are read, and unused ones are masked: shapes then stay the same from position to position, as
    replaying a CUDA graph requires. With very many rows that would cost too much.
    """

    def __init__(self, num_sentences: int, expected: int, lines: int, device: torch.device) -> None:
        """Begin with one row for each sentence, before its first position.

        Args:
            num_sentences: number of sentences, G.
            expected: number of positions of each row for which slots are allocated at first; doubled when used up.
            lines: lines of attention in the cache of each sentence: S on a grid.
            device: device of the caches.
        """
        self.rows_per_sentence = 1
        """Rows of each sentence, R."""
        self.past = torch.empty(num_sentences, 0, dtype=torch.long, device=device)
        """Slots of each row's past, the newest position included, `[N, t]`."""
        self.used = 0
        """Number of slots in use for each sentence, those of the newest position included."""
        self.room = 0
        """Number of slots allocated for each sentence."""
        self.fixed = captures(device)
        """Whether shapes stay the same, for CUDA graphs."""
        self.newest = torch.empty(0, dtype=torch.long, device=device)
        """Slots of the newest position, `[R]`; with `fixed`, always in the same memory."""
        self.own = OwnSlots()
        """Slots of each row's past, as kernels read them; unused if `fixed`."""
        self._expected, self._lines = expected, lines
        self._visible = torch.empty(0, 0, dtype=torch.bool, device=device)  # [N, L]: the past as a mask
        self._distances = torch.empty(0, 0, dtype=torch.long, device=device)  # [N, L], if anybody has asked for them
        self._measured: Tensor | None = None  # the past that they are of

    @property
    def num_rows(self) -> int:
        """Number of live rows, N."""
        return self.past.shape[0]

    @property
    def num_sentences(self) -> int:
        """Number of sentences that the live rows belong to, G."""
        return self.num_rows // self.rows_per_sentence

    @property
    def position(self) -> int:
        """Index of the newest position, from 0; -1 before the first."""
        return self.past.shape[1] - 1

    @property
    def read(self) -> int:
        """Number of slots that attention reads, the first ones."""
        return self.room if self.fixed else self.used

    @property
    def memory(self) -> list[Tensor]:
        """Tensors that attention reads at each position."""
        return [self.own.memory, self._visible, self.newest, self._distances] if self.fixed else [self.own.memory]

    def advance(self) -> None:
        """Give every row a slot for its next position; afterwards `room` may be larger than before."""
        begin, rows = self.used, self.rows_per_sentence
        self.used += rows
        if self.used > self.room:
            room = max(2 * begin, self._expected * rows, self.used)
            self.room = -(-room // 8) * 8  # fused attention needs mask lengths that are multiples of 8
        if not begin:
            self.fixed = self.fixed and self.num_rows * self._lines * self.room <= LARGEST_MASK
        newest = torch.arange(begin, self.used, device=self.newest.device)
        self.newest = self.newest.copy_(newest) if self.fixed and len(self.newest) == rows else newest
        self.past = torch.cat([self.past, self.newest.expand(self.num_sentences, -1).reshape(-1, 1)], dim=1)
        if self.fixed:
            self._see()
            if self._measured is not None:
                self._measure()
        else:
            self.own.update(self.past, begin)

    def take(self, past: Int[Tensor, "N t"]) -> None:
        """Advance by several positions at once, with slots assigned as by `advance`."""
        self.used += self.rows_per_sentence * (past.shape[1] - self.past.shape[1])
        self.past = past
        self.own.update(past, self.used - self.rows_per_sentence)

    def mask(self, like: Tensor, axes: int) -> AttentionMask:
        """Mask by which each row attends to its past; `axes` is the number of axes between G and R."""

        def visible() -> Bool[Tensor, "G R L"]:
            if not self.fixed:
                self._see()
            return self._visible.unflatten(0, (self.num_sentences, self.rows_per_sentence))

        return AttentionMask.cached(visible, None if self.fixed else self.own, like, axes)

    def distances(self) -> Int[Tensor, "G R L"]:
        """How many positions before a row's newest one each slot that attention reads is.

        The largest of a row is the index of its newest position. Slots that the mask hides from the row have 0, as its
        newest one has. Where positions are replayed, the numbers are updated in place.
        """
        if self._measured is not self.past:
            self._measure()
        return self._distances.unflatten(0, (self.num_sentences, self.rows_per_sentence))

    def _measure(self) -> None:
        """Update the distances of the slots of each row's past."""
        if self._distances.shape != (self.num_rows, self.read):
            self._distances = self._distances.new_empty(self.num_rows, self.read)
        before = torch.arange(self.position, -1, -1, device=self.past.device).expand_as(self.past)
        self._distances.zero_().scatter_(1, self.past, before)
        self._measured = self.past

    def _see(self) -> None:
        """Update the mask of the slots of each row's past."""
        if self._visible.shape != (self.num_rows, self.read):
            self._visible = self._visible.new_empty(self.num_rows, self.read)
        self._visible.fill_(False).scatter_(1, self.past, True)

    def select(self, rows: Int[Tensor, " M"]) -> Sequence[int] | None:
        """Repeat, reorder and drop rows, as `DecoderState.select` does.

        Returns:
            Old indices of the remaining sentences, in their new order; None if they stay the same.
        """
        before, sentences = self.num_sentences, rows.div(self.rows_per_sentence, rounding_mode="floor").tolist()
        self.past = self.past.index_select(0, send(rows, self.past.device))
        if sentences == [sentence for sentence in range(before) for _ in range(self.rows_per_sentence)]:
            return None  # the fast path: at most positions, beams are reordered and no sentence leaves
        self.rows_per_sentence = _common_run(sentences)
        kept = sentences[:: self.rows_per_sentence]
        return None if kept == list(range(before)) else kept


def _common_run(sentences: Sequence[int]) -> int:
    """R if every sentence has R adjacent rows; else 1: every row becomes a sentence of its own."""
    runs = [(sentence, len(list(rows))) for sentence, rows in groupby(sentences)]
    lengths, distinct = {length for _, length in runs}, {sentence for sentence, _ in runs}
    return lengths.pop() if len(lengths) == 1 and len(distinct) == len(runs) else 1
