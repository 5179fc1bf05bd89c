"""What a model keeps between decoding positions: keys and values that the rows of a sentence share.

Every position of every hypothesis is written once, into a *slot* of its sentence's cache, and never moved when
hypotheses are reordered: a row only remembers which slots are its own past. All rows of a sentence are scored against
all its slots in one product, and the slots that are not a row's own past are masked.
"""

from __future__ import annotations

from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KeyValueCache:
    """Keys and values of one attention layer: `[G, H, slots, D]`, or `[G, S, H, slots, D]` on the grid.

    G counts sentences. Slots are preallocated and doubled when they run out.
    """

    def __init__(self) -> None:
        self._stored: Tensor | None = None  # [2, G, ..., capacity, D]
        self._used = 0

    def append(
        self, keys: Float[Tensor, "G *axes R D"], values: Float[Tensor, "G *axes R D"]
    ) -> tuple[Float[Tensor, "G *axes L D"], Float[Tensor, "G *axes L D"]]:
        """Write the newest position of the R rows of every sentence, and return views of all slots so far."""
        end = self._used + keys.shape[-2]
        if self._stored is None or end > self._stored.shape[-2]:
            self._grow(keys, end)
        assert self._stored is not None
        self._stored[0, ..., self._used : end, :] = keys
        self._stored[1, ..., self._used : end, :] = values
        self._used = end
        return self._stored[0, ..., :end, :], self._stored[1, ..., :end, :]

    def keep(self, sentences: Int[Tensor, " M"]) -> None:
        """Keep, repeat or drop sentences; only those that move are copied when others fill the holes of dropped ones."""
        if self._stored is not None:
            self._stored = keep_rows(self._stored, sentences, dim=1)

    def _grow(self, like: Tensor, end: int) -> None:
        shape = (2, *like.shape[:-2], max(16, 2 * end), like.shape[-1])
        grown = like.new_empty(shape)
        if self._stored is not None:
            grown[..., : self._used, :] = self._stored[..., : self._used, :]
        self._stored = grown


def keep_rows(stored: Tensor, rows: Int[Tensor, " M"], dim: int = 0) -> Tensor:
    """`stored` with `rows` picked along `dim`; in place if what moves comes from behind the kept part."""
    count = rows.shape[0]
    moved = (rows != torch.arange(count, device=rows.device)).nonzero().flatten()
    if count > stored.shape[dim] or (rows[moved] < count).any():
        return stored.index_select(dim, rows)
    if len(moved):
        stored.index_copy_(dim, moved, stored.index_select(dim, rows[moved]))
    return stored.narrow(dim, 0, count)


class CachedState:
    """The `DecoderState` of every family: one cache a layer, tensors of the source, and each row's own slots.

    The N rows are R rows of each of G sentences, side by side.
    """

    def __init__(self, num_layers: int, constants: dict[str, Tensor]) -> None:
        """Begin with one row for each sentence; the `constants` have the sentences as their first axis."""
        first = next(iter(constants.values()))
        self.constants = constants
        self.caches = [KeyValueCache() for _ in range(num_layers)]
        self.rows_per_sentence = 1
        self.slots = torch.empty(first.shape[0], 0, dtype=torch.long, device=first.device)  # [N, t]
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
        kept = sentences[::rows_per_sentence]
        for cache in self.caches:
            cache.keep(kept)
        self.constants = {name: keep_rows(tensor, kept) for name, tensor in self.constants.items()}
        self.slots = self.slots[rows]
        self.rows_per_sentence = rows_per_sentence
        return self

    def by_position(self, weights: Float[Tensor, "G *axes R L"]) -> Float[Tensor, "N *axes 1 J"]:
        """Attention weights over slots as every row's own weights over the positions of its past."""
        rows = weights.movedim(-2, 1).flatten(0, 1)  # -> [N, *axes, L]
        index = self.slots.view(self.num_rows, *[1] * (rows.dim() - 2), -1).expand(*rows.shape[:-1], -1)
        return rows.gather(-1, index).unsqueeze(-2)


def _common_run(sentences: Int[Tensor, " M"]) -> int:
    """R if every sentence has R rows side by side, and one run only; else 1: every row becomes a sentence of its own."""
    kept, runs = torch.unique_consecutive(sentences, return_counts=True)
    if len(runs) and bool((runs == runs[0]).all()) and len(kept.unique()) == len(kept):
        return int(runs[0])
    return 1
