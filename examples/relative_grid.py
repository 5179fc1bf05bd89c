"""A Reformer with relative positions: ALiBi (Press et al., ICLR 2022) in target and source attention.

    python examples/relative_grid.py RECIPE OUT

Trains RECIPE with this family instead of its own. Scores fall by the distance times a slope, another one for each head;
on the source axis, in both directions. The sinusoids of the embeddings stay. Search reads a cache whose slots are not
in the order of positions: `cache.distances` says how far back each of them is. A learned bias would look up a table of
the layer by the distance instead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

import jointnmt
from jointnmt.experiment import Experiment
from jointnmt.models import (
    FAMILIES,
    AttentionMaps,
    AttentionMask,
    Family,
    GridLayer,
    GridLexical,
    GridMasks,
    KeyValueCache,
    Reformer,
    ReformerBaseConfig,
)


class AlibiConfig(ReformerBaseConfig):
    family: Literal["alibi"] = "alibi"  # type: ignore[assignment]


class AlibiLayer(GridLayer):
    def forward(
        self,
        x: Tensor,
        masks: GridMasks,
        lexical: GridLexical,
        cache: KeyValueCache | None = None,
        attn_weights: AttentionMaps | None = None,
    ) -> Tensor:
        source, target = (distances(length, x.device) for length in x.shape[1:3])
        if cache is not None:
            target = cache.distances[:, None, None]  # [G, R, L] -> [G, 1, 1, R, L]
        masks = GridMasks(self.biased(masks.source, source), self.biased(masks.target, target))
        return super().forward(x, masks, lexical, cache, attn_weights)

    def biased(self, mask: AttentionMask, distances: Tensor) -> AttentionMask:
        heads = torch.arange(1, self.target_attention.num_heads + 1, device=distances.device)
        slopes = 2.0 ** (-8 * heads / len(heads))
        bias = (mask.bias - slopes[:, None, None] * distances).to(mask.bias.dtype)
        return AttentionMask(lambda: bias)


class Alibi(Reformer):
    def make_layer(self, index: int) -> GridLayer:
        return AlibiLayer(self.config)


def distances(length: int, device: torch.device) -> Tensor:
    positions = torch.arange(length, device=device)
    return (positions[:, None] - positions).abs()


def main(recipe: Path, out: Path) -> None:
    FAMILIES["alibi"] = Family(AlibiConfig, Alibi)
    experiment = Experiment.load(recipe, {"model.family": "alibi"})
    for record in jointnmt.train(experiment, out):
        if record["event"] == "validation":
            print(f"update {record['step']}: perplexity {record['perplexity']:.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
