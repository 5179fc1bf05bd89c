"""A model for tests of search, with random logits that are a function of the source and the whole target prefix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from jointnmt.models.interface import AttentionMaps, TranslationModel
from jointnmt.text.special import bos_id, pad_id

Row = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass
class TableState:
    """The source and the target prefix of every row; usable once."""

    rows: list[Row]
    used: bool = False

    def use(self) -> list[Row]:
        assert not self.used, "a state must not be used again after step or select"
        self.used = True
        return self.rows

    def select(self, rows: Tensor) -> TableState:
        old = self.use()
        return TableState([old[row] for row in rows.tolist()])


class TableModel(TranslationModel):
    """Logits are `scale` times standard normal ones; `seen` records the rows of each step."""

    def __init__(self, vocabulary: int, seed: int = 0, scale: float = 2.0, max_length: int | None = None) -> None:
        super().__init__()
        self.vocabulary, self.seed, self.scale, self.max_length = vocabulary, seed, scale, max_length
        self.seen: list[list[Row]] = []
        self.device_marker = torch.nn.Parameter(torch.zeros(1))
        self.eval()

    def logits(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> Tensor:
        generator = np.random.default_rng([self.seed, len(source), *source, *prefix])
        return torch.from_numpy(self.scale * generator.standard_normal(self.vocabulary)).float()

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        sources = real(source)
        if attn_weights is not None:
            attn_weights.alignment = (source != pad_id).float().unsqueeze(1).repeat(1, target_input.shape[1], 1)
            attn_weights.alignment /= attn_weights.alignment.sum(-1, keepdim=True)
        return torch.stack(
            [
                torch.stack([self.logits(ids, tuple(row[: t + 1])) for t in range(len(row))])
                for ids, row in zip(sources, target_input.tolist(), strict=True)
            ]
        )

    def start(self, source: Tensor) -> TableState:
        return TableState([(ids, ()) for ids in real(source)])

    def step(self, last_ids: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        old = state.use()
        assert len(old) == len(last_ids)
        rows = [(source, (*prefix, last)) for (source, prefix), last in zip(old, last_ids.tolist(), strict=True)]
        assert all(prefix[0] == bos_id for _, prefix in rows)
        self.seen.append(rows)
        return torch.stack([self.logits(*row) for row in rows]), TableState(rows)


def real(source: Tensor) -> list[tuple[int, ...]]:
    """The ids of each row, without padding."""
    return [tuple(token for token in row if token != pad_id) for row in source.tolist()]
