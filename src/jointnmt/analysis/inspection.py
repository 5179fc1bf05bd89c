"""Everything that a model does with one sentence and its translation, layer by layer and cell by cell.

One teacher-forced pass in float32. Positions of the source are S pieces and the end mark; of the target T: what has
been read is the begin mark and the pieces, what is predicted there the pieces and the end mark. Cell (s, t) of a grid
is where source position s meets target position t.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.data.batch import Batch
from jointnmt.errors import DataError
from jointnmt.models import AttentionMaps
from jointnmt.ops import log_softmax
from jointnmt.text.special import BOS, EOS
from jointnmt.translator import Translator
from jointnmt.translator.pairs import encoded_pair

SEQUENCES = ("encoder", "decoder", "cross", "prenet")
GRID = ("source", "target")
"""Attention along the axes of the grid."""
CELLS, TARGET_SIDE = ("grid", *GRID), ("decoder", "cross")
"""What has a value for each cell, and for each target position; the rest has one for each source position."""


@dataclass(frozen=True)
class StreamNorms:
    """The residual stream of a stack: how long its vectors are, and how far each layer moves them (Euclidean norms)."""

    norm: Float[np.ndarray, "*_"]
    """`[L + 1, *places]`: of the input, then of the output of each of L layers, before a final layer norm."""
    change: Float[np.ndarray, "*_"]
    """`[L, *places]`: of the difference that each layer makes."""


@dataclass(frozen=True)
class Inspection:
    """A sentence, its translation, and what the model does with them.

    Arrays have a dimension for layers first (L), then heads (H), then places: S source positions, T target positions,
    or cells S x T. Attention rows sum to 1 over the last dimension. Entropies are in nats.
    """

    family: str
    translation: str
    source_tokens: tuple[str, ...]
    target_read: tuple[str, ...]
    target_predicted: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]
    """Of what is predicted."""
    alignment: Float[np.ndarray, "T S"]
    """See `AttentionMaps.alignment`."""
    attention: Mapping[str, Float[np.ndarray, "*_"]]
    """`encoder` and `prenet` [L, H, S, S], `decoder` [L, H, T, T], `cross` [L, H, T, S]; of a grid, `source`
    [L, H, T, S, S] and `target` [L, H, S, T, T]."""
    entropy: Mapping[str, Float[np.ndarray, "*_"]]
    """Of each attention row, [L, H, queries]; of a grid by cell, [L, H, S, T]."""
    states: Mapping[str, StreamNorms]
    """Of `encoder`, `decoder` and `prenet` by position, of `grid` by cell."""
    gates: Mapping[str, Float[np.ndarray, "*_"]]
    """Of lexical shortcuts, by place as of `AttentionMaps.gates`: mean over features, [L, *places, 2], of keys and of
    values."""
    left_out: int = 0
    """Further target positions of a translation that is longer than was asked for."""

    @property
    def is_grid(self) -> bool:
        """Whether source and target meet in a grid."""
        return "grid" in self.states

    def cell(self, source: int, target: int) -> CellInspection:
        """What happens at a source and a target position.

        Raises:
            DataError: if there is no such position.
        """
        for name, position, tokens in (("source", source, self.source_tokens), ("target", target, self.target_read)):
            if not 0 <= position < len(tokens):
                raise DataError(f"There is no {name} position {position}: they go from 0 to {len(tokens) - 1}.")

        def at(array: Float[np.ndarray, "*_"], name: str, leading: int) -> Float[np.ndarray, "*_"]:
            """The values of these positions, behind `leading` dimensions."""
            places = (source, target) if name in CELLS else (target,) if name in TARGET_SIDE else (source,)
            return array[(slice(None),) * leading + places]

        turned = {
            name: weights.swapaxes(2, 3) if name == "source" else weights  # [L, H, T, S, S] -> [L, H, S, T, S]
            for name, weights in self.attention.items()
        }
        return CellInspection(
            {name: at(array, name, 2) for name, array in turned.items()},
            {name: at(array, name, 2) for name, array in self.entropy.items()},
            {name: StreamNorms(at(each.norm, name, 1), at(each.change, name, 1)) for name, each in self.states.items()},
            # The gates of cross-attention are of its keys and values: of the source.
            {name: at(array, "encoder" if name == "cross" else name, 1) for name, array in self.gates.items()},
            float(self.alignment[target, source]),
        )


@dataclass(frozen=True)
class CellInspection:
    """What an `Inspection` has of one source and one target position, under the same names without the places."""

    attention: Mapping[str, Float[np.ndarray, "*_"]]
    """`[L, H, keys]`: a row of each head."""
    entropy: Mapping[str, Float[np.ndarray, "*_"]]
    """`[L, H]`."""
    states: Mapping[str, StreamNorms]
    gates: Mapping[str, Float[np.ndarray, "*_"]]
    """`[L, 2]`."""
    alignment: float

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {
            "attention": {name: array.tolist() for name, array in self.attention.items()},
            "entropy": {name: array.tolist() for name, array in self.entropy.items()},
            "states": {
                name: {"norm": each.norm.tolist(), "change": each.change.tolist()} for name, each in self.states.items()
            },
            "gates": {name: array.tolist() for name, array in self.gates.items()},
            "alignment": self.alignment,
        }


@torch.no_grad()
def inspect_pair(
    translator: Translator, source: str, target: str | None = None, most_tokens: int | None = None
) -> Inspection:
    """Look into a model while it reads a sentence with its translation.

    Args:
        translator: its trained weights compute, in float32 whatever the translator's precision.
        source: the sentence.
        target: its translation; None: the model's own, as of `encoded_pair`.
        most_tokens: of either side, end marks counted; attention on a grid takes memory as their third power. Of a
            longer translation, the first so many positions are told: none of them depends on those that follow.

    Raises:
        DataError: if the source is empty, too long for the model, or has more than `most_tokens` tokens.
    """
    sentence, text = encoded_pair(translator, source, target, most_tokens)
    batch = Batch.collate([sentence.source], [sentence.target]).to(translator.device)
    batch = replace(
        batch, target_input=batch.target_input[:, :most_tokens], target_output=batch.target_output[:, :most_tokens]
    )
    attn_weights, model = AttentionMaps(), translator.only_model()
    streams = {name: _Stream() for name in model.stacks()}
    with ExitStack() as hooks:
        for name, stack in model.stacks().items():
            hooks.enter_context(streams[name].follow(stack.layers))
        logits = model(batch.source, batch.target_input, attn_weights)
    chosen = log_softmax(logits)[0].gather(-1, batch.target_output[0].unsqueeze(-1)).squeeze(-1)
    segmentation = translator.segmentation
    target_tokens = (BOS, *map(segmentation.target.piece, sentence.target), EOS)
    told = len(chosen)
    attention = {name: layers for name in (*SEQUENCES, *GRID) if (layers := getattr(attn_weights, name))}
    return Inspection(
        family=translator.experiment.model.family,
        translation=text,
        source_tokens=(*map(segmentation.source.piece, sentence.source), EOS),
        target_read=target_tokens[:told],
        target_predicted=target_tokens[1 : told + 1],
        token_log_probabilities=tuple(chosen.tolist()),
        alignment=_array(attn_weights.require_alignment()[0]),
        attention={name: _array(torch.cat(layers)) for name, layers in attention.items()},
        entropy={name: _entropy(name, layers) for name, layers in attention.items()},
        states={name: stream.norms() for name, stream in streams.items()},
        gates={name: _array(torch.cat(layers).mean(-1)) for name, layers in attn_weights.gates.items()},
        left_out=sentence.target_tokens - told,
    )


class _Stream:
    """Measures a residual stream while the model runs; of its vectors, only the newest are kept."""

    def __init__(self) -> None:
        self._newest: Tensor | None = None
        self._norms: list[Tensor] = []
        self._changes: list[Tensor] = []

    @contextmanager
    def follow(self, layers: Sequence[nn.Module]) -> Iterator[None]:
        """Listen to these layers."""
        hooks = [layers[0].register_forward_pre_hook(lambda _, arguments: self._note(arguments[0]))]
        hooks += [layer.register_forward_hook(lambda _, __, output: self._note(output)) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def norms(self) -> StreamNorms:
        """What has been measured, of the only sentence of the batch."""
        return StreamNorms(_array(torch.cat(self._norms)), _array(torch.cat(self._changes)))

    def _note(self, x: Tensor) -> None:
        x = x.float().clone()  # a model may reuse its memory
        self._norms.append(x.norm(dim=-1))
        if self._newest is not None:
            self._changes.append((x - self._newest).norm(dim=-1))
        self._newest = x


def _entropy(name: str, layers: Sequence[Float[Tensor, "1 H *queries keys"]]) -> Float[np.ndarray, "L H *places"]:
    entropy = torch.cat([torch.special.entr(each.float()).sum(-1) for each in layers])
    return _array(entropy.transpose(2, 3) if name == "source" else entropy)  # [L, H, T, S] -> [L, H, S, T]


def _array(values: Tensor) -> Float[np.ndarray, "*_"]:
    return values.detach().float().cpu().numpy()
