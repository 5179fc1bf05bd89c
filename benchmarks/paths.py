"""Table 1 of Li et al. (2020), measured on the models: path lengths between source and target, and their cost.

    python -m benchmarks.paths

Nothing is timed. Path lengths follow gradients through the reference of each family with random weights; operations are
counted while the reference computes. docs/analysis.md has the table and its discussion.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.sizes import SIZES, model_config
from jointnmt.models import FAMILIES, ModelConfig, build_model
from jointnmt.models.reference import Reference

PAPER = {
    "transformer": ("O(n²d)", "O(l)"),
    "reformer-base": ("O(n³d)", "O(1)"),
    "reformer-fast": ("O(n³d), PreNet O(n²d)", "O(l)"),
}
"""Complexity of a layer and path length, from Table 1 and the paper's text on Reformer-fast."""
DEPTHS, LENGTHS = (1, 2, 4), (3, 9)
"""Layers of every stack, and tokens of both sides, for the paths."""
TOKENS, EMBED_DIM = 23, SIZES["IWSLT"].settings["embed_dim"]
"""Size of the sentence and the models for the count of operations."""
FIRST, WEAK = 0, (1e-3, 1e-4)
"""The token whose path is followed; and the factor of attentions, by which those on its path are counted."""
SUPERSCRIPTS = {1: "", 2: "²", 3: "³"}
HEAD = (
    "| | paper: complexity | path | attention here | its share at 23 tokens | half from | "
    "layers until a source and a target token meet, l = 1, 2, 4 | fewest attentions: from a source token | "
    "from a target token |\n" + "|---" * 9 + "|\n"
)


class Followed(Reference):
    """A reference that keeps the states of its layers, and whose attentions can be weakened."""

    def __init__(self, config: Any, weights: Any) -> None:
        super().__init__(config, weights)
        self.strength = 1.0
        """Factor of the results of attention, the reduction included."""
        self.embedded: dict[str, Tensor] = {}
        self.states: list[Tensor] = []
        """States of the layers in the order of computation: `[B, L, E]` or, of the grid, `[B, S, T, E]`."""

    def embed(self, name: str, ids: Tensor) -> Tensor:
        self.embedded[name] = super().embed(name, ids)
        return self.embedded[name]

    def attention(self, *args: Any) -> Tensor:
        return self.strength * super().attention(*args)

    def reduce(self, *args: Any) -> Tensor:
        return self.strength * super().reduce(*args)

    def _kept(self, layer: Callable[..., Tensor], *args: Any) -> Tensor:
        self.states.append(layer(*args))
        return self.states[-1]

    def encoder_layer(self, *args: Any) -> Tensor:
        return self._kept(super().encoder_layer, *args)

    def decoder_layer(self, *args: Any) -> Tensor:
        return self._kept(super().decoder_layer, *args)

    def grid_layer(self, *args: Any) -> Tensor:
        return self._kept(super().grid_layer, *args)


def layers_until_meeting(family: str, depth: int, tokens: int) -> int:
    """Layers on the path of a source token, up to the one whose newest state depends on it and an earlier target token.

    The newest state is that at the last target position; of a grid, all cells there. On a grid, the input already joins
    source and target at the token's own cell; here both must reach a state of another target position.
    """
    model = _followed(family, depth)
    model(*_ids(tokens))
    passed = 0
    for state in model.states:
        source, target = (_influence(model, side, state[..., -1, :]) > 0 for side in ("source", "target"))
        passed += source
        if source and target:
            return passed
    raise AssertionError(f"{family}: source and target never meet")


def fewest_attentions(family: str, depth: int, tokens: int, side: str) -> int:
    """Attentions, the reduction included, on the shortest path of a side's first token to the last prediction.

    Each attention on a path multiplies its share of the gradient by the strength. So if the strength is small, the
    gradient is proportional to its power with the shortest path's number of attentions; residual connections are free.
    """
    model, influences = _followed(family, depth), []
    for model.strength in WEAK:
        influences.append(_influence(model, side, model(*_ids(tokens))[:, -1]))
    return round(math.log(influences[0] / influences[1]) / math.log(WEAK[0] / WEAK[1]))


def attention_operations(family: str, tokens: int, embed_dim: int) -> tuple[int, int]:
    """Operations of a layer of each stack: scores and weighted sums; projections and feed-forward blocks."""
    shallow, deep = (_products(family, depth, tokens, embed_dim) for depth in (1, 2))
    attention, every = (deep[kind] - shallow[kind] for kind in ("attention", "every"))
    return attention, every - attention


@cache
def _products(family: str, depth: int, tokens: int, embed_dim: int) -> dict[str, int]:
    """Operations of the reference with stacks of so many layers."""
    layers = dict.fromkeys(SIZES["IWSLT"].depths[family], depth)
    config = model_config(family, "IWSLT", embed_dim=embed_dim, ffn_dim=4 * embed_dim, **layers)
    model = build_model(config, 5, 5)
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        Reference(config, model.state_dict())(*torch.full((2, 1, tokens), 4))
    attention = counted.get_flop_counts()["Global"][torch.ops.aten.bmm]
    return {"attention": attention, "every": counted.get_total_flops()}


def growth(family: str) -> tuple[int, int]:
    """The powers of n, the tokens on both sides, and d, the features, in attention's operations."""
    base, longer, wider = (attention_operations(family, *each)[0] for each in ((4, 32), (8, 32), (4, 64)))
    return round(math.log2(longer / base)), round(math.log2(wider / base))


def path_table() -> str:
    """The table: the paper's columns, and the measured ones."""
    return HEAD + "".join(map(_line, FAMILIES))


def _line(family: str) -> str:
    n, d = growth(family)
    attention, other = attention_operations(family, TOKENS, EMBED_DIM)
    met = [{layers_until_meeting(family, depth, tokens) for tokens in LENGTHS} for depth in DEPTHS]
    shortest = [
        {fewest_attentions(family, depth, tokens, side) for depth in DEPTHS for tokens in LENGTHS}
        for side in ("source", "target")
    ]
    cells = [
        family,
        *PAPER[family],
        f"n{SUPERSCRIPTS[n]}d{SUPERSCRIPTS[d]}",
        f"{attention / (attention + other):.1%}",
        f"n = {TOKENS * other / attention:,.0f}",
        ", ".join(map(_all_the_same, met)),
        *map(_all_the_same, shortest),
    ]
    return f"| {' | '.join(cells)} |\n"


def _all_the_same(found: set[int]) -> str:
    """The number if all are equal; else their range."""
    return f"{min(found)}" if len(found) == 1 else f"{min(found)} to {max(found)}"


def _followed(family: str, depth: int) -> Followed:
    torch.manual_seed(1)
    layers = dict.fromkeys(SIZES["tiny"].depths[family], depth)
    config: ModelConfig = model_config(family, "tiny", dropout=0.0, **layers)
    model = build_model(config, SIZES["tiny"].vocabulary, SIZES["tiny"].vocabulary).double()
    return Followed(config, model.state_dict()).double()


def _ids(tokens: int) -> Tensor:
    """Different ids of a source and a target sentence, `[2, 1, tokens]`."""
    return 4 + torch.arange(2 * tokens).view(2, 1, tokens)


def _influence(model: Followed, side: str, state: Tensor) -> float:
    """Norm of the gradient of a randomly weighted state with respect to the first token of a side."""
    weights = torch.randn(state.shape, dtype=state.dtype, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(
        (state * weights).sum(), model.embedded[f"{side}_embedding"], retain_graph=True, materialize_grads=True
    )
    return float(gradient[0, FIRST].norm())


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(path_table(), end="")
