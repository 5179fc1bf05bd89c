"""What a model keeps between decoding positions: keys and values that the rows of a sentence share.

Every position of every hypothesis is written once, into a *slot* of its sentence's cache, and never moved when
hypotheses are reordered: a row only remembers which slots are its own past. On a CPU each row reads its own slots, in
place; elsewhere all rows of a sentence are scored against all its slots in one product, and the slots that are not a
row's own past are masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jointnmt.native import operations as native


@dataclass(frozen=True)
class Move:
    """Which sentences are kept, and what that moves: decided once, done to every tensor."""

    sentences: Int[Tensor, " M"]
    """The kept ones, by their old places."""
    filled: tuple[tuple[int, int], ...] | None
    """The places of dropped sentences, each with that of the sentence from behind the kept part which fills it; None:
    all sentences are copied."""

    @classmethod
    def plan(cls, sentences: Int[Tensor, " M"], count: int) -> Self:
        """Plan to keep `sentences` of `count`, in this order, perhaps repeatedly."""
        kept = sentences.tolist()
        filled = tuple((to, place) for to, place in enumerate(kept) if to != place)
        in_place = len(kept) <= count and all(place >= len(kept) for _, place in filled)
        return cls(sentences, filled if in_place else None)

    def apply(self, stored: Tensor, used: int | None = None) -> Tensor:
        """`stored` with the kept sentences along its first axis; in place where that is possible.

        Args:
            stored: used up.
            used: slots along the last axis but one that hold anything; None: all hold something.
        """
        kept, content = len(self.sentences), stored if used is None else stored[..., :used, :]
        if self.filled is not None:
            for to, place in self.filled:  # one by one: indices copy what is not contiguous number by number
                content[to] = content[place]
            return stored[:kept]
        picked = content.index_select(0, self.sentences)
        if used is None:
            return picked
        result = stored.new_empty([kept, *stored.shape[1:]])
        result[..., :used, :] = picked
        return result


class KeyValueCache:
    """Keys, then values, of one attention layer: `[G, slots, 2E]`, or `[G, S, slots, 2E]` on the grid.

    G counts sentences. Slots are preallocated, for the positions that are expected, and doubled when they run out.
    """

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.stored = torch.empty(0)
        """With all slots that there is room for, `[G, *lines, C, 2E]`, contiguous."""
        self._used = 0

    @property
    def kept(self) -> Float[Tensor, "G *lines L EE"]:
        """The slots that hold something."""
        return self.stored[..., : self._used, :]

    def append(self, key_value: Float[Tensor, "G *lines R EE"]) -> None:
        """Write the newest position of the R rows of every sentence."""
        end = self._used + key_value.shape[-2]
        if not self._used or end > self.stored.shape[-2]:
            self._grow(key_value, max(2 * self._used, self._expected * key_value.shape[-2], end))
        self.stored[..., self._used : end, :] = key_value
        self._used = end

    def keep(self, move: Move) -> None:
        """Keep, repeat or drop sentences."""
        if self._used:
            self.stored = move.apply(self.stored, used=self._used)

    def _grow(self, like: Tensor, slots: int) -> None:
        grown = native.empty((*like.shape[:-2], slots, like.shape[-1]), like)
        if self._used:
            grown[..., : self._used, :] = self.kept
        self.stored = grown


class CachedState:
    """The `DecoderState` of every family: one cache a layer, tensors of the source, and each row's own slots.

    The N rows are R rows of each of G sentences, side by side.
    """

    def __init__(self, num_layers: int, mask: Bool[Tensor, "B S"], constants: dict[str, Tensor]) -> None:
        """Begin with one row for each sentence.

        `mask`, the real tokens of the source, becomes one of the `constants`, which have the sentences as their first
        axis.
        """
        self.constants = {"mask": mask, **constants}
        expected = mask.shape[1] + mask.shape[1] // 4 + 4  # translations are about as long as their sources
        self.caches = [KeyValueCache(expected) for _ in range(num_layers)]
        self.rows_per_sentence = 1
        self.slots = torch.empty(mask.shape[0], 0, dtype=torch.long, device=mask.device)  # [N, t]
        self._used_slots = 0

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

    def advance(self) -> None:
        """Give every row a slot for its next position."""
        own = torch.arange(self.rows_per_sentence, device=self.slots.device) + self._used_slots
        self.slots = torch.cat([self.slots, own.repeat(self.num_sentences)[:, None]], dim=1)
        self._used_slots += self.rows_per_sentence

    def slot_bias(self, dtype: torch.dtype) -> Float[Tensor, "G R L"]:
        """0 at the slots of a row's own past, minus infinity elsewhere."""
        bias = torch.full((self.num_rows, self._used_slots), -torch.inf, dtype=dtype, device=self.slots.device)
        return bias.scatter_(1, self.slots, 0).unflatten(0, (self.num_sentences, self.rows_per_sentence))

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        """See `DecoderState.select`."""
        sentences = rows // self.rows_per_sentence
        rows_per_sentence = _common_run(sentences)
        move = Move.plan(sentences[::rows_per_sentence], self.num_sentences)
        for cache in self.caches:
            cache.keep(move)
        self.constants = {name: move.apply(tensor) for name, tensor in self.constants.items()}
        self.slots = self.slots[rows]
        self.rows_per_sentence = rows_per_sentence
        return self

    def by_position(self, weights: Float[Tensor, "G *axes R L"]) -> Float[Tensor, "N *axes 1 J"]:
        """Attention weights over slots as every row's own weights over the positions of its past."""
        rows = weights.movedim(-2, 1).flatten(0, 1)  # -> [N, *axes, L]
        index = self.slots.view(self.num_rows, *[1] * (rows.dim() - 2), -1).expand(*rows.shape[:-1], -1)
        return rows.gather(-1, index).unsqueeze(-2)


def _common_run(sentences: Int[Tensor, " M"]) -> int:
    """R if every sentence has R rows, all side by side; else 1: every row becomes a sentence of its own."""
    kept, runs = torch.unique_consecutive(sentences, return_counts=True)
    if len(runs) and bool((runs == runs[0]).all()) and len(kept.unique()) == len(kept):
        return int(runs[0])
    return 1
