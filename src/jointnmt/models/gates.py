"""Mean gates of lexical shortcuts: how much of the lexical input they let through."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from jaxtyping import Bool, Float
from torch import Tensor

from jointnmt.models.interface import AttentionMaps

GateMeans = dict[str, list[dict[str, float]]]
"""Mean gates of `keys` and of `values`: by place with shortcuts, then layer."""


def gate_means(
    attn_weights: AttentionMaps, source_mask: Bool[Tensor, "B S"], target_mask: Bool[Tensor, "B T"]
) -> dict[str, list[Float[Tensor, "B 2"]]]:
    """Mean gates of keys and of values for each sentence: by place with shortcuts, then layer.

    The mean is over features and over the positions, or cells, that are not padding. 0: all hidden, 1: all lexical.
    """
    cells = source_mask[:, :, None] & target_mask[:, None]
    masks = {"encoder": source_mask, "cross": source_mask, "prenet": source_mask, "decoder": target_mask}
    return {
        place: [_mean(gates, masks.get(place, cells)) for gates in layers]
        for place, layers in attn_weights.gates.items()
    }


def _mean(gates: Float[Tensor, "B ... 2 E"], mask: Bool[Tensor, "B ..."]) -> Float[Tensor, "B 2"]:
    over = tuple(range(1, mask.dim()))
    real = gates.float().mean(dim=-1) * mask.unsqueeze(-1)  # [B, *places, 2]
    return real.sum(dim=over) / mask.sum(dim=over).unsqueeze(-1)


def mean_over_sentences(each: Sequence[GateMeans]) -> GateMeans:
    """Means over several sentences, with equal weight."""
    return {
        place: [
            {name: fmean(means[place][number][name] for means in each) for name in layer}
            for number, layer in enumerate(layers)
        ]
        for place, layers in each[0].items()
    }


def plain_means(means: dict[str, list[Float[Tensor, "B 2"]]], sentence: int) -> GateMeans:
    """Mean gates of one sentence of the batch, as plain numbers."""
    return {
        place: [dict(zip(("keys", "values"), layer[sentence].tolist(), strict=True)) for layer in layers]
        for place, layers in means.items()
    }


def named_layers(means: GateMeans) -> dict[str, float]:
    """Mean gates under names like `encoder.1.keys`, with layers counted from 1."""
    return {
        f"{place}.{number}.{name}": value
        for place, layers in means.items()
        for number, layer in enumerate(layers, start=1)
        for name, value in layer.items()
    }
