"""A batch of sentence pairs, as the models and the loss take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jointnmt.ops.transfer import send
from jointnmt.text.special import bos_id, eos_id, pad_id, with_begin, with_end


@dataclass(frozen=True)
class BatchPart:
    """Position of rows within a batch shared by several processes, so that their dropout masks do not depend on it."""

    begin: int
    whole: int
    """Rows of the shared batch."""
    first_pair: int
    """Number of the shared batch's first pair."""


@dataclass(frozen=True)
class Batch:
    """Sentence pairs padded on the right with `pad_id`.

    A source is its pieces and the end mark; a target input is the begin mark and the pieces; a target output is the
    pieces and the end mark. Masks are True at real tokens.
    """

    source: Int[Tensor, "B S"]
    target_input: Int[Tensor, "B T"]
    target_output: Int[Tensor, "B T"]
    indices: tuple[int, ...]
    """Numbers of the sentence pairs in the store, for error messages."""
    shared: BatchPart | None = None
    """Position within a shared batch, with the padding of that batch; None: this batch is whole."""
    tags: tuple[int, ...] = ()
    """Ids of source tokens that are tags, not pieces of the sentence."""

    @classmethod
    def collate(
        cls,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        indices: Sequence[int] | None = None,
        widths: tuple[int, int] = (0, 0),
        shared: BatchPart | None = None,
        tags: tuple[int, ...] = (),
    ) -> Batch:
        """Pad sentence pairs of piece ids, given without begin and end marks, at least to these widths."""
        return cls(
            source=pad_rows([with_end(ids) for ids in sources], widths[0]),
            target_input=pad_rows([with_begin(ids) for ids in targets], widths[1]),
            target_output=pad_rows([with_end(ids) for ids in targets], widths[1]),
            indices=tuple(range(len(sources)) if indices is None else indices),
            shared=shared,
            tags=tags,
        )

    @property
    def part(self) -> BatchPart:
        """The position of these rows within the shared batch; of a whole batch, all rows."""
        return self.shared or BatchPart(0, len(self), self.indices[0])

    @property
    def source_mask(self) -> Bool[Tensor, "B S"]:
        """True where a source token is real."""
        return self.source != pad_id

    @property
    def target_mask(self) -> Bool[Tensor, "B T"]:
        """True where a target token is real."""
        return self.target_output != pad_id

    @property
    def source_piece_mask(self) -> Bool[Tensor, "B S"]:
        """True at source pieces: neither padding nor the end mark nor a tag."""
        mask = self.source_mask & (self.source != eos_id)
        for tag in self.tags:
            mask &= self.source != tag
        return mask

    @property
    def target_piece_mask(self) -> Bool[Tensor, "B T"]:
        """True where the decoder reads a target piece: neither padding nor the begin mark."""
        return (self.target_input != pad_id) & (self.target_input != bos_id)

    @cached_property
    def num_target_tokens(self) -> int:
        """Real target tokens, end marks included: the divisor of the loss."""
        return int(self.target_mask.sum())

    @cached_property
    def num_source_tokens(self) -> int:
        """Real source tokens, end marks included."""
        return int(self.source_mask.sum())

    @property
    def num_cells(self) -> int:
        """Cells of the padded grid, B * S * T."""
        return self.source.numel() * self.target_input.shape[1]

    @cached_property
    def num_real_cells(self) -> int:
        """Cells of the grid whose source and target token are both real."""
        return int((self.source_mask.sum(1) * self.target_mask.sum(1)).sum())

    def __len__(self) -> int:
        return self.source.shape[0]

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        source, target_input, target_output = (
            send(tensor, device) for tensor in (self.source, self.target_input, self.target_output)
        )
        return Batch(source, target_input, target_output, self.indices, self.shared, self.tags)

    def silenced(self) -> Batch:
        """The same inputs with no target token to predict: loss and gradients are zero."""
        return replace(self, target_output=torch.full_like(self.target_output, pad_id))

    def split(self) -> tuple[Batch, Batch]:
        """The first and second half of the sentences as two batches, each with its own padding.

        Raises:
            ValueError: if there is only one sentence.
        """
        if len(self) < 2:
            raise ValueError("a batch of one sentence cannot be split")
        middle = len(self) // 2
        return self._rows(slice(None, middle)), self._rows(slice(middle, None))

    def _rows(self, rows: slice) -> Batch:
        source_length = int(self.source_mask[rows].sum(1).max())
        target_length = int(self.target_mask[rows].sum(1).max())
        return Batch(
            self.source[rows, :source_length],
            self.target_input[rows, :target_length],
            self.target_output[rows, :target_length],
            self.indices[rows],
            tags=self.tags,
        )


def collate_sources(sources: Sequence[Sequence[int]]) -> Int[Tensor, "B S"]:
    """Sources, given as piece ids without marks, as one tensor with end marks, padded on the right with `pad_id`."""
    return pad_rows([with_end(ids) for ids in sources])


def pad_rows(rows: Sequence[Sequence[int]], width: int = 0) -> Int[Tensor, "B L"]:
    """Rows of ids as one tensor, padded on the right with `pad_id` to the longest one, or to `width`."""
    width = max([width, *map(len, rows)])
    return torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in rows], dtype=torch.long)
