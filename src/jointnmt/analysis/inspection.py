"""Everything that a model computes on one sentence and its translation, layer by layer and cell by cell.

One teacher-forced pass in float32. The S source positions are the pieces and the end mark. At the T target positions,
the begin mark and the pieces are read, and the pieces and the end mark are predicted. Cell (s, t) of a grid belongs to
source position s and target position t.
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
"""Names of attention along the axes of the grid."""
CELLS, TARGET_SIDE = ("grid", *GRID), ("decoder", "cross")
"""Names of values for each cell, and for each target position; all others have values for each source position."""


@dataclass(frozen=True)
class StreamNorms:
    """Euclidean norms of the residual stream of a stack, and of its change by each layer."""

    norm: Float[np.ndarray, "*_"]
    """Norms of the input, then of the output of each of L layers, before a final layer norm, `[L + 1, *places]`."""
    change: Float[np.ndarray, "*_"]
    """Norms of the difference that each layer makes, `[L, *places]`."""


@dataclass(frozen=True)
class Inspection:
    """A sentence, its translation, and the model's internal values for them.

    The dimensions of arrays are layers (L), heads (H), then places: S source positions, T target positions, or cells
    S x T. Attention rows sum to 1 over the last dimension. Entropies are in nats.
    """

    family: str
    translation: str
    source_tokens: tuple[str, ...]
    target_read: tuple[str, ...]
    target_predicted: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]
    """Log-probabilities of the predicted tokens, in nats."""
    alignment: Float[np.ndarray, "T S"]
    """Alignment weights; see `AttentionMaps.alignment`."""
    attention: Mapping[str, Float[np.ndarray, "*_"]]
    """Attention weights: `encoder` and `prenet` [L, H, S, S], `decoder` [L, H, T, T], `cross` [L, H, T, S]; for a grid,
    `source` [L, H, T, S, S] and `target` [L, H, S, T, T]."""
    entropy: Mapping[str, Float[np.ndarray, "*_"]]
    """Entropy of each attention row, [L, H, queries]; for a grid by cell, [L, H, S, T]."""
    states: Mapping[str, StreamNorms]
    """Norms of the residual streams: `encoder`, `decoder` and `prenet` by position, `grid` by cell."""
    gates: Mapping[str, Float[np.ndarray, "*_"]]
    """Gates of lexical shortcuts by place, as in `AttentionMaps.gates`: mean over features, [L, *places, 2], of keys
    and of values."""
    left_out: int = 0
    """Number of target positions left out, as the translation has more than were asked for."""

    @property
    def is_grid(self) -> bool:
        """Whether source and target meet in a grid."""
        return "grid" in self.states

    def cell(self, source: int, target: int) -> CellInspection:
        """The values at a source and a target position.

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
            # The gates of cross-attention apply to its keys and values, which are of the source.
            {name: at(array, "encoder" if name == "cross" else name, 1) for name, array in self.gates.items()},
            float(self.alignment[target, source]),
        )


@dataclass(frozen=True)
class CellInspection:
    """Values of an `Inspection` at one source and one target position, under the same names without the places."""

    attention: Mapping[str, Float[np.ndarray, "*_"]]
    """Attention row of each head, `[L, H, keys]`."""
    entropy: Mapping[str, Float[np.ndarray, "*_"]]
    """Entropy of each row, `[L, H]`."""
    states: Mapping[str, StreamNorms]
    gates: Mapping[str, Float[np.ndarray, "*_"]]
    """Mean gates of keys and of values, `[L, 2]`."""
    alignment: float

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
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
    """Run a model on a sentence with its translation, and collect its internal values.

    Args:
        translator: a translator, whose trained weights are used in float32 whatever its precision.
        source: the sentence.
        target: its translation; None: the model's own, in the pieces that search found.
        most_tokens: most tokens of either side, end marks included; the memory of attention on a grid grows with their
            third power. A longer translation is inspected up to this position, as none depends on later ones.

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
    positions = len(chosen)
    attention = {name: layers for name in (*SEQUENCES, *GRID) if (layers := getattr(attn_weights, name))}
    return Inspection(
        family=translator.experiment.model.family,
        translation=text,
        source_tokens=(*map(segmentation.source.piece, sentence.source), EOS),
        target_read=target_tokens[:positions],
        target_predicted=target_tokens[1 : positions + 1],
        token_log_probabilities=tuple(chosen.tolist()),
        alignment=_array(attn_weights.require_alignment()[0]),
        attention={name: _array(torch.cat(layers)) for name, layers in attention.items()},
        entropy={name: _entropy(name, layers) for name, layers in attention.items()},
        states={name: stream.norms() for name, stream in streams.items()},
        gates={name: _array(torch.cat(layers).mean(-1)) for name, layers in attn_weights.gates.items()},
        left_out=sentence.target_tokens - positions,
    )


class _Stream:
    """Measures a residual stream while the model runs; only its newest vectors are kept."""

    def __init__(self) -> None:
        self._newest: Tensor | None = None
        self._norms: list[Tensor] = []
        self._changes: list[Tensor] = []

    @contextmanager
    def follow(self, layers: Sequence[nn.Module]) -> Iterator[None]:
        """Context in which the stream is measured at these layers."""
        distinct = dict.fromkeys(layers)  # a stack may apply a layer several times
        hooks = [layers[0].register_forward_pre_hook(lambda _, arguments: self._note_input(arguments[0]))]
        hooks += [layer.register_forward_hook(lambda _, __, output: self._note(output)) for layer in distinct]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def norms(self) -> StreamNorms:
        """The measured norms, for the only sentence of the batch."""
        return StreamNorms(_array(torch.cat(self._norms)), _array(torch.cat(self._changes)))

    def _note_input(self, x: Tensor) -> None:
        if self._newest is None:
            self._note(x)

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
