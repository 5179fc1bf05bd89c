"""An RNN with attention (Bahdanau et al., ICLR 2015), as a family from a package of its own.

    pip install --no-deps examples/own_family
    jointnmt train package:demo --out runs/rnn --set model.family=rnn

From then on all commands know it. A family consists of settings, a model with `forward`, `start` and `step`, and an
entry point (`pyproject.toml`). This one departs from the paper: embeddings are scaled and have positions, as in the
other families here; the encoder's states of both directions are projected to E; the decoder's first state is their
mean; the readout is one layer with tanh (in the paper: maxout); there is dropout; and initial weights are PyTorch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jointnmt.models import (
    AttentionMaps,
    DecoderState,
    Family,
    FamilyConfig,
    Linear,
    SharedDropout,
    TranslationModel,
    embedding_tables,
)
from jointnmt.text.special import pad_id


class RNNConfig(FamilyConfig):
    """One layer of E features on either side.

    It uses the common settings `embed_dim`, `dropout`, `embedding_dropout`, `embeddings` and `max_length`.
    """

    family: Literal["rnn"] = "rnn"


@dataclass(frozen=True)
class Source:
    """The encoded source that the decoder reads, a row for each row of the target."""

    states: Float[Tensor, "N S E"]
    keys: Float[Tensor, "N S E"]
    """The states, projected for attention."""
    mask: Bool[Tensor, "N S"]
    """True at real tokens."""

    def select(self, rows: Int[Tensor, " M"]) -> Source:
        """Select rows."""
        return Source(self.states[rows], self.keys[rows], self.mask[rows])


@dataclass(frozen=True)
class RNNState:
    """The state between two target positions: the decoder's hidden state, and the source."""

    hidden: Float[Tensor, "N E"]
    source: Source
    position: int = 0
    """Position of the next target token."""

    def select(self, rows: Int[Tensor, " M"]) -> RNNState:
        """See `DecoderState`."""
        rows = rows.to(self.hidden.device)
        return RNNState(self.hidden[rows], self.source.select(rows), self.position)


class RNN(TranslationModel):
    """A bidirectional GRU that reads the source, and a GRU that attends to it at each target position."""

    capturable = True  # `forward` computes with tensors alone: a GPU may replay it as a CUDA graph

    def __init__(self, config: RNNConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        width = config.embed_dim
        tables = embedding_tables(config, source_vocabulary, target_vocabulary)
        self.source_embedding, self.target_embedding, self.output = tables
        self.forwards, self.backwards = (nn.GRU(width, width, batch_first=True) for _ in range(2))
        self.both_ways = Linear(2 * width, width)
        self.key, self.query, self.energy = Linear(width, width), Linear(width, width), Linear(width, 1)
        self.cell = nn.GRUCell(2 * width, width)
        self.readout = Linear(3 * width, width)
        self.dropout = SharedDropout(config.dropout)  # unlike nn.Dropout, equal in processes that share a batch

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        state = self.start(source)
        read, weights = [], []
        for embedded in self.target_embedding(target_input).unbind(1):
            vector, weight, state = self._position(embedded, state)
            read.append(vector)
            weights.append(weight)
        if attn_weights is not None:
            attn_weights.alignment = torch.stack(weights, 1)
            attn_weights.cross.append(attn_weights.alignment[:, None])  # [B, H, T, S], with one head
        return self.output(torch.stack(read, 1))

    def start(self, source: Int[Tensor, "B S"]) -> RNNState:
        mask = source != pad_id
        embedded = self.source_embedding(source)
        # Reversed within each length, so that padding is last in both directions and no real position reads it. (Packed
        # sequences need lengths on the CPU, and waiting for a GPU cannot be part of a CUDA graph.)
        places, lengths = torch.arange(source.shape[1], device=source.device), mask.sum(1, keepdim=True)
        turned = torch.where(mask, lengths - 1 - places, places)[..., None].expand_as(embedded)
        backwards = self.backwards(embedded.gather(1, turned))[0].gather(1, turned)
        states = torch.cat([self.forwards(embedded)[0], backwards], -1)
        states = self.both_ways(self.dropout(states)).masked_fill(~mask[..., None], 0)
        mean = states.sum(1) / mask.sum(1, keepdim=True)
        return RNNState(torch.tanh(mean), Source(states, self.key(states), mask))

    def step(self, last_ids: Int[Tensor, " N"], state: DecoderState) -> tuple[Float[Tensor, "N V"], RNNState]:
        assert isinstance(state, RNNState)
        vector, _, state = self._position(self.target_embedding(last_ids[:, None], state.position)[:, 0], state)
        return self.output(vector), state

    def _position(
        self, embedded: Float[Tensor, "N E"], state: RNNState
    ) -> tuple[Float[Tensor, "N E"], Float[Tensor, "N S"], RNNState]:
        """Features that predict the next token, the attention weights, and the next state."""
        source = state.source
        energy = self.energy(torch.tanh(self.query(state.hidden)[:, None] + source.keys)).squeeze(-1)
        weights = energy.masked_fill(~source.mask, float("-inf")).softmax(-1)
        context = (weights[:, None] @ source.states)[:, 0]
        hidden = self.cell(torch.cat([embedded, context], -1), state.hidden)
        vector = torch.tanh(self.readout(self.dropout(torch.cat([hidden, context, embedded], -1))))
        return vector, weights, RNNState(hidden, source, state.position + 1)


FAMILY = Family(RNNConfig, RNN)
