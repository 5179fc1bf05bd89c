"""The decoder state of every family: caches of keys and values that the rows of a sentence share.

Every position of every hypothesis is written once, into a *slot* of its sentence's cache, and never moved when
hypotheses are reordered: a row only remembers which slots are its own past. On a CPU each row reads its own slots, in
place; elsewhere all rows of a sentence are scored against all its slots in one product, and the slots that are not a
row's own past are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import prod
from typing import Any, Generic, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jointnmt.data.batch import send
from jointnmt.models.interface import MultiStepState
from jointnmt.models.layers.embedding import TokenEmbedding
from jointnmt.ops import AttentionMask, MultiStepDecoder, OwnSlots, append_to_cache, empty
from jointnmt.ops.cuda_graph import CUDAGraphRunner, captures
from jointnmt.ops.replay import KernelRunner, replays

LARGEST_MASK = 2**25
"""Elements of the mask of self-attention, on a grid of all lines, up to which shapes are kept fixed for CUDA graphs."""

Constants = TypeVar("Constants", bound="tuple[Any, ...]")
"""What a family makes of the source once: tensors with the sentences as their first axis, in tuples of any depth."""


@dataclass(frozen=True)
class BatchCompaction:
    """Which sentences of a batch are kept, and what has to be copied: planned once, applied to every tensor."""

    sentences: Sequence[int]
    """The old indices of the kept sentences."""
    filled: Sequence[tuple[int, int]] | None
    """Pairs of indices (to, from): a sentence from the end of the batch is copied to the place of a dropped one. None:
    all sentences are copied."""

    @classmethod
    def plan(cls, sentences: Sequence[int], count: int) -> Self:
        """Plan to keep `sentences` of `count`, in this order, perhaps repeatedly."""
        filled = [(to, place) for to, place in enumerate(sentences) if to != place]
        in_place = len(sentences) <= count and all(place >= len(sentences) for _, place in filled)
        return cls(sentences, filled if in_place else None)

    def apply(self, stored: Tensor, used: int | None = None) -> Tensor:
        """`stored` with the kept sentences along its first axis; in place where that is possible.

        Args:
            stored: consumed.
            used: the number of slots in use, along the last axis but one; None: all.
        """
        kept, content = len(self.sentences), stored if used is None else stored[..., :used, :]
        if self.filled is not None:
            for to, place in self.filled:  # slices: indexing copies tensors that are not contiguous element by element
                content[to].copy_(content[place])
            return stored[:kept]
        picked = content.index_select(0, torch.tensor(self.sentences, dtype=torch.long, device=content.device))
        if used is None:
            return picked
        result = stored.new_empty([kept, *stored.shape[1:]])
        result[..., :used, :] = picked
        return result


class Slots:
    """How many slots the caches of a state have for each sentence, and which are the newest.

    On a GPU all allocated slots are read, and unused ones are masked: shapes then stay the same from position to
    position, as replaying a CUDA graph requires. With very many rows that would cost too much.
    """

    def __init__(self, expected: int, device: torch.device) -> None:
        """Slots for the `expected` positions of each row are allocated at first, and doubled when they run out."""
        self._expected = expected
        self.fixed = captures(device)
        """Whether shapes stay the same, for CUDA graphs."""
        self.used = 0
        """Slots in use, those of the newest position included."""
        self.room = 0
        """Slots allocated."""
        self.newest = torch.empty(0, dtype=torch.long, device=device)
        """Those of the newest position, `[R]`; with `fixed`, always in the same memory."""
        self.own = OwnSlots()
        """Those that each row may attend to, unless `fixed`."""

    @property
    def read(self) -> int:
        """The first slots that attention reads."""
        return self.room if self.fixed else self.used

    def advance(self, rows: int, mask_rows: int) -> None:
        """Go on to the next position of `rows` rows of each sentence; a mask of all slots has `mask_rows` rows."""
        begin, self.used = self.used, self.used + rows
        if self.used > self.room:
            room = max(2 * begin, self._expected * rows, self.used)
            self.room = -(-room // 8) * 8  # fused attention needs masks of such lengths
        if not begin:
            self.fixed = self.fixed and mask_rows * self.room <= LARGEST_MASK
        newest = torch.arange(begin, self.used, device=self.newest.device)
        self.newest = self.newest.copy_(newest) if self.fixed and len(self.newest) == rows else newest


class KeyValueCache:
    """Keys, then values, of one attention layer: `[G, slots, 2E]`, or `[G, S, slots, 2E]` on the grid.

    G counts sentences.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.stored = torch.empty(0)
        """All allocated slots, `[G, *lines, C, 2E]`, contiguous; there are none before the first position."""

    @property
    def kept(self) -> Float[Tensor, "G *lines L EE"]:
        """The slots to be read."""
        return self.stored[..., : self._slots.read, :]

    def append(self, key_value: Float[Tensor, "G *lines R EE"]) -> None:
        """Write the newest position of the R rows of every sentence; their slots are allocated."""
        if self._slots.fixed:
            self.stored.index_copy_(-2, self._slots.newest, key_value)
        else:
            append_to_cache(self.stored, key_value, self._slots.own)

    def make_room(self, lines: tuple[int, ...], like: Float[Tensor, "G R E"], filled: int) -> None:
        """Grow to the allocated number of slots of each line, of which `filled` are copied."""
        shape = (len(like), *lines, self._slots.room, 2 * like.shape[-1])
        # Masked slots are read if there are fixed shapes, so they must not hold NaN.
        grown = like.new_zeros(shape) if self._slots.fixed else empty(shape, like)
        if filled:
            grown[..., :filled, :] = self.stored[..., :filled, :]
        self.stored = grown

    def keep(self, compaction: BatchCompaction) -> None:
        """Keep, repeat or drop sentences."""
        if self.stored.numel():
            self.stored = compaction.apply(self.stored, used=None if self._slots.fixed else self._slots.used)


class CachedState(MultiStepState, Generic[Constants]):
    """The `DecoderState` of every family: one cache a layer, tensors of the source, and each row's own slots.

    The N rows are R rows of each of G sentences, side by side.
    """

    def __init__(
        self, num_layers: int, mask: Bool[Tensor, "B S"], constants: Constants, lines: tuple[int, ...] = ()
    ) -> None:
        """Begin with one row for each sentence.

        Args:
            num_layers: each with a cache.
            mask: True at the real tokens of the source.
            constants: what is made of the source once.
            lines: axes of the caches between sentences and slots.
        """
        self.real, self.lengths = mask, mask.sum(dim=1, dtype=torch.int32)
        self.constants = constants
        expected = mask.shape[1] + mask.shape[1] // 4 + 4  # translations are about as long as their sources
        self._supply = Slots(expected, mask.device)
        self.caches = [KeyValueCache(self._supply) for _ in range(num_layers)]
        self._lines = lines
        self.rows_per_sentence = 1
        self.slots = torch.empty(mask.shape[0], 0, dtype=torch.long, device=mask.device)  # [N, t]
        self._visible = torch.empty(0, 0, dtype=torch.bool, device=mask.device)  # [N, L]
        self._graph, self._kernels = CUDAGraphRunner(), KernelRunner()
        self._embedding: TokenEmbedding | None = None

    @property
    def num_rows(self) -> int:
        """Live rows N."""
        return self.slots.shape[0]

    @property
    def num_sentences(self) -> int:
        """Sentences G that the live rows belong to."""
        return self.num_rows // self.rows_per_sentence

    @property
    def position(self) -> int:
        """The number of the newest position, from 0; -1 before the first."""
        return self.slots.shape[1] - 1

    def step(
        self,
        model: nn.Module,
        embedding: TokenEmbedding,
        newest: Callable[[Tensor, Self], Tensor],
        last_ids: Int[Tensor, " N"],
    ) -> Float[Tensor, "N V"]:
        """Go on by a position; returns the logits that follow it.

        Args:
            model: whose weights are read.
            embedding: of the target.
            newest: the logits `[G, R, V]` of the embedded tokens `[G, R, E]`. It may depend on them, on this state's
                tensors and on the weights only: once it repeats itself, it is replayed.
            last_ids: of the rows' tokens at this position.
        """
        self._embedding = embedding
        x = embedding(last_ids[:, None], start=self.position + 1)
        x = x.view(self.num_sentences, self.rows_per_sentence, -1)  # [N, 1, E] -> [G, R, E]
        self._advance(x)
        return self._compute(model, lambda x: newest(x, self), x).flatten(0, 1)

    def _advance(self, x: Float[Tensor, "G R E"]) -> None:
        """Give every row a slot for its next position, whose keys and values are in the type of `x`."""
        filled, room = self._supply.used, self._supply.room
        self._supply.advance(self.rows_per_sentence, self.num_rows * prod(self._lines))
        if self._supply.room != room:
            for cache in self.caches:
                cache.make_room(self._lines, x, filled)
        newest = self._supply.newest.expand(self.num_sentences, -1).reshape(-1, 1)
        self.slots = torch.cat([self.slots, newest], dim=1)
        if self._supply.fixed:
            self._see()
        else:
            self._supply.own.update(self.slots, filled)

    def _see(self) -> None:
        """Mark the slots of each row."""
        if self._visible.shape != (self.num_rows, self._supply.read):
            self._visible = self._visible.new_empty(self.num_rows, self._supply.read)
        self._visible.fill_(False).scatter_(1, self.slots, True)

    def _compute(
        self, model: nn.Module, newest: Callable[[Tensor], Tensor], x: Float[Tensor, "G R E"]
    ) -> Float[Tensor, "G R V"]:
        """`newest(x)`, computed or replayed."""
        if torch.is_grad_enabled():
            return newest(x)
        if self._supply.fixed:
            return self._graph.run(newest, x, [self._visible, self._supply.newest, *self._memory()])
        return self._kernels.run(model, newest, x, self._memory()) if replays(x) else newest(x)

    def _memory(self) -> list[Tensor]:
        """What is computed from and written to at each position."""
        caches = (cache.stored for cache in self.caches)
        return [self._supply.own.memory, self.real, self.lengths, *_tensors(self.constants), *caches]

    def multi_step_decoder(self) -> MultiStepDecoder | None:
        """See `MultiStepState.multi_step_decoder`."""
        recorded = self._kernels.ready(self.num_sentences, self.rows_per_sentence, self._memory())
        embedding = self._embedding
        if recorded is None or torch.is_grad_enabled() or not replays(recorded.given):
            return None
        if type(embedding) is not TokenEmbedding:  # another one may compute otherwise
            return None
        begin, room = self.position + 1, (self._supply.room - self._supply.used) // self.rows_per_sentence
        positions, table = embedding.positions[begin : begin + room], embedding.weight
        if not len(positions) or not table.dtype == positions.dtype == torch.float32 or not table.is_contiguous():
            return None
        return MultiStepDecoder(
            recorded, table, embedding.scale, positions, self._supply.own, self.slots, self._supply.used
        )

    def take_positions(self, slots: Int[Tensor, "N t"]) -> None:
        """See `MultiStepState.take_positions`."""
        self._supply.used += self.rows_per_sentence * (slots.shape[1] - self.slots.shape[1])
        self.slots = slots
        self._supply.own.update(slots, self._supply.used - self.rows_per_sentence)

    def mask(self, like: Tensor, axes: int) -> AttentionMask:
        """Each row may attend to its own past; `axes` lie between the G sentences and the R rows of the attention."""

        def visible() -> Tensor:
            if not self._supply.fixed:
                self._see()
            return self._visible.unflatten(0, (self.num_sentences, self.rows_per_sentence))

        return AttentionMask.cached(visible, None if self._supply.fixed else self._supply.own, like, axes)

    def source_mask(self, like: Tensor, axes: int) -> AttentionMask:
        """All real tokens of the source; `axes` lie between the G sentences and the S positions of the attention."""
        return AttentionMask.padding(self.real, like, axes, self.lengths)

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        """See `DecoderState.select`."""
        sentences = rows.div(self.rows_per_sentence, rounding_mode="floor").tolist()
        if sentences != [sentence for sentence in range(self.num_sentences) for _ in range(self.rows_per_sentence)]:
            self._keep(sentences)
        self.slots = self.slots.index_select(0, send(rows, self.slots.device))
        return self

    def _keep(self, sentences: Sequence[int]) -> None:
        """Keep, repeat or drop sentences, which are those of the rows to come."""
        rows_per_sentence = _common_run(sentences)
        kept = sentences[::rows_per_sentence]
        if kept != list(range(self.num_sentences)):
            compaction = BatchCompaction.plan(kept, self.num_sentences)
            for cache in self.caches:
                cache.keep(compaction)
            self.real, self.lengths, self.constants = _mapped(
                compaction.apply, (self.real, self.lengths, self.constants)
            )
        self.rows_per_sentence = rows_per_sentence


def _tensors(constants: tuple[Any, ...]) -> list[Tensor]:
    """All that are in tuples of tuples."""
    return list(chain.from_iterable([each] if isinstance(each, Tensor) else _tensors(each) for each in constants))


def _mapped(function: Callable[[Tensor], Tensor], constants: Constants) -> Constants:
    """The same tuples, with the function's results for tensors."""
    parts = [function(each) if isinstance(each, Tensor) else _mapped(function, each) for each in constants]
    make = getattr(constants, "_make", type(constants))  # of a named tuple
    return make(parts)  # type: ignore[no-any-return]


def _common_run(sentences: Sequence[int]) -> int:
    """R if every sentence has R rows, all side by side; else 1: every row becomes a sentence of its own."""
    runs = [(sentence, len(list(rows))) for sentence, rows in groupby(sentences)]
    lengths, distinct = {length for _, length in runs}, {sentence for sentence, _ in runs}
    return lengths.pop() if len(lengths) == 1 and len(distinct) == len(runs) else 1
