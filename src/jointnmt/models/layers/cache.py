"""The decoder state of every family: caches of keys and values that the rows of a sentence share, and the source."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import chain
from math import prod
from typing import Any, Generic, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jointnmt.models.interface import DecoderState, TranslationModel
from jointnmt.models.layers.compaction import BatchCompaction
from jointnmt.models.layers.embedding import TokenEmbedding
from jointnmt.models.layers.slots import RowSlots
from jointnmt.ops import AttentionMask, MultiStepDecoder, append_to_cache, cache_memory
from jointnmt.ops.cuda_graph import CUDAGraphRunner
from jointnmt.ops.replay import KernelRunner, replays

FORWARD = TokenEmbedding.forward
"""What `MultiStepDecoder` computes, even if somebody replaces it in the class."""

Constants = TypeVar("Constants", bound="tuple[Any, ...]")
"""Tensors that a family computes once from the source: sentences are their first axis, in tuples of any depth."""


class KeyValueCache:
    """Keys, then values, of one attention layer: `[G, slots, 2E]`, or `[G, S, slots, 2E]` on the grid.

    G is the number of sentences.
    """

    def __init__(self, slots: RowSlots) -> None:
        self._slots = slots
        self.stored = torch.empty(0)
        """All allocated slots, `[G, *lines, C, 2E]`, contiguous; empty before the first position."""

    @property
    def distances(self) -> Int[Tensor, "G R L"]:
        """How many positions before a row's newest one each of these slots is; see `RowSlots.distances`."""
        return self._slots.distances()

    def append(self, key_value: Float[Tensor, "G *lines R EE"]) -> None:
        """Write the newest position of the R rows of every sentence; their slots are allocated."""
        if self._slots.fixed:
            self.stored.index_copy_(-2, self._slots.newest, key_value)
        else:
            append_to_cache(self.stored, key_value, self._slots.own)

    def make_room(self, lines: tuple[int, ...], like: Float[Tensor, "G R E"], filled: int) -> None:
        """Grow to the allocated number of slots of each line, of which `filled` are copied."""
        shape = (len(like), *lines, self._slots.room, 2 * like.shape[-1])
        # With fixed shapes, masked slots are read as well, so they must not hold NaN.
        grown = like.new_zeros(shape) if self._slots.fixed else cache_memory(shape, like)
        if filled:
            grown[..., :filled, :] = self.stored[..., :filled, :]
        self.stored = grown

    def keep(self, compaction: BatchCompaction) -> None:
        """Keep, repeat or drop sentences."""
        if self.stored.numel():
            self.stored = compaction.apply(self.stored, used=None if self._slots.fixed else self._slots.used)


class SourceMemory(Generic[Constants]):
    """The source during decoding: its mask of real tokens, and the `Constants` of the family."""

    def __init__(self, real: Bool[Tensor, "G S"], constants: Constants) -> None:
        self.real, self.lengths = real, real.sum(dim=1, dtype=torch.int32)
        self.constants = constants

    def mask(self, like: Tensor, axes: int) -> AttentionMask:
        """Padding mask of the source; `axes` is the number of axes between G and S, as in `AttentionMask.padding`."""
        return AttentionMask.padding(self.real, like, axes, self.lengths)

    def keep(self, compaction: BatchCompaction) -> None:
        """Keep, repeat or drop sentences."""
        self.real, self.lengths, self.constants = _mapped(compaction.apply, (self.real, self.lengths, self.constants))

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, those of `constants` included."""
        return [self.real, self.lengths, *_flattened(self.constants)]


class CachedState(Generic[Constants]):
    """The `DecoderState` of every family: one cache per layer, the source, and the cache slots of each row."""

    def __init__(
        self, num_layers: int, mask: Bool[Tensor, "B S"], constants: Constants, lines: tuple[int, ...] = ()
    ) -> None:
        """Begin with one row for each sentence.

        Args:
            num_layers: number of layers, each with a cache.
            mask: True at the real tokens of the source.
            constants: what the family computes once from the source.
            lines: axes of the caches between sentences and slots.
        """
        sentences, length = mask.shape
        expected = length + length // 4 + 4  # translations are about as long as their sources
        self.source = SourceMemory(mask, constants)
        self.slots = RowSlots(sentences, expected, prod(lines), mask.device)
        self.caches = [KeyValueCache(self.slots) for _ in range(num_layers)]
        self._lines = lines
        self._graph, self._kernels = CUDAGraphRunner(), KernelRunner()
        self._embedding: TokenEmbedding | None = None

    def step(
        self,
        model: nn.Module,
        embedding: TokenEmbedding,
        newest: Callable[[Tensor, Self], Tensor],
        last_ids: Int[Tensor, " N"],
    ) -> Float[Tensor, "N V"]:
        """Advance by one position; return the logits of the next token.

        Args:
            model: owner of the weights.
            embedding: target embedding.
            newest: computes logits `[G, R, V]` from embedded tokens `[G, R, E]`. It may be recorded and replayed at
                later positions, so it may depend only on these, on `source`, the caches, `slots.mask` and
                `slots.distances`, which stay where they are or are noticed when they move, and on the weights: not on
                `slots.past`, which is another tensor at each position, nor on a number that changes from position to
                position. Attention to relative positions, or to a window, reads `slots.distances` (for a layer:
                `KeyValueCache.distances`), as slots are not in the order of positions.
            last_ids: token of each row at this position.
        """
        self._embedding = embedding
        x = embedding(last_ids[:, None], start=self.slots.position + 1)
        x = x.view(self.slots.num_sentences, self.slots.rows_per_sentence, -1)  # [N, 1, E] -> [G, R, E]
        self._advance(x)
        return self._compute(model, lambda x: newest(x, self), x).flatten(0, 1)

    def _advance(self, x: Float[Tensor, "G R E"]) -> None:
        """Give every row a slot for its next position; keys and values have the dtype of `x`."""
        filled, room = self.slots.used, self.slots.room
        self.slots.advance()
        if self.slots.room != room:
            for cache in self.caches:
                cache.make_room(self._lines, x, filled)

    def _compute(
        self, model: nn.Module, newest: Callable[[Tensor], Tensor], x: Float[Tensor, "G R E"]
    ) -> Float[Tensor, "G R V"]:
        """`newest(x)`, computed or replayed."""
        if torch.is_grad_enabled():
            return newest(x)
        if self.slots.fixed:
            return self._graph.run(newest, x, self._memory())
        return self._kernels.run(model, newest, x, self._memory()) if replays(x) else newest(x)

    def _memory(self) -> list[Tensor]:
        """Tensors that are read or written at each position."""
        return [*self.slots.memory, *self.source.tensors, *(cache.stored for cache in self.caches)]

    def multi_step_decoder(self) -> MultiStepDecoder | None:
        """A decoder that replays what the last `step` recorded; None if it recorded nothing or may not be replayed."""
        slots, embedding = self.slots, self._embedding
        recorded = self._kernels.ready(slots.num_sentences, slots.rows_per_sentence, self._memory())
        if recorded is None or torch.is_grad_enabled() or not replays(recorded.given):
            return None
        if type(embedding) is not TokenEmbedding or "forward" in vars(embedding):  # it may compute something else
            return None
        if TokenEmbedding.forward is not FORWARD:
            return None
        begin, room = slots.position + 1, (slots.room - slots.used) // slots.rows_per_sentence
        positions, table = embedding.positions[begin : begin + room], embedding.weight
        if not len(positions) or not table.dtype == positions.dtype == torch.float32 or not table.is_contiguous():
            return None
        return MultiStepDecoder(recorded, table, embedding.scale, positions, slots.own, slots.past, slots.used)

    def take_positions(self, slots: Int[Tensor, "N t"]) -> None:
        """See `MultiStepState.take_positions`."""
        self.slots.take(slots)

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        """See `DecoderState.select`."""
        before = self.slots.num_sentences
        kept = self.slots.select(rows)
        if kept is not None:
            compaction = BatchCompaction.plan(kept, before)
            self.source.keep(compaction)
            for cache in self.caches:
                cache.keep(compaction)
        return self


class CachedModel(TranslationModel):
    """A model whose decoder state is a `CachedState`; search decodes several positions at a time where kernels can."""

    target_embedding: TokenEmbedding

    @abstractmethod
    def newest(self, embedded: Float[Tensor, "G R E"], state: Any) -> Float[Tensor, "G R V"]:
        """Logits of the newest position of the R rows of each of G sentences.

        `CachedState.step` says what it may read. Recordings of it are kept for a model: one that replaces it on an
        object has to do so before its first search.
        """

    def step(self, last_ids: Int[Tensor, " N"], state: DecoderState) -> tuple[Float[Tensor, "N V"], DecoderState]:
        assert isinstance(state, CachedState)
        return state.step(self, self.target_embedding, self.newest, last_ids), state

    def multi_step_decoder(self, state: DecoderState) -> MultiStepDecoder | None:
        """See `TranslationModel.multi_step_decoder`; None for a subclass or an object with a `step` of its own."""
        has_own_step = type(self).step is not CachedModel.step or "step" in vars(self)
        return None if has_own_step or not isinstance(state, CachedState) else state.multi_step_decoder()


def _flattened(constants: tuple[Any, ...]) -> list[Tensor]:
    """All tensors in nested tuples."""
    return list(chain.from_iterable([each] if isinstance(each, Tensor) else _flattened(each) for each in constants))


def _mapped(function: Callable[[Tensor], Tensor], constants: Constants) -> Constants:
    """The same nested tuples, with `function` applied to each tensor."""
    parts = [function(each) if isinstance(each, Tensor) else _mapped(function, each) for each in constants]
    make = getattr(constants, "_make", type(constants))  # for named tuples
    return make(parts)
