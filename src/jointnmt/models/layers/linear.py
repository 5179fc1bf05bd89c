"""Linear layers, and their initial weights."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.ops import Normed, fusable, linear


class Linear(nn.Linear):
    """A linear layer; its input is a tensor, or the `Normed` of a residual connection."""

    @fusable
    def forward(self, x: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places F"]:
        return linear(x, self.weight, self.bias)

    def product(self, x: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places F"]:
        """The product with the weights, without the bias."""
        return linear(x, self.weight)


def projection(inputs: int, outputs: int, bias: bool = True, xavier_outputs: int | None = None) -> Linear:
    """A linear layer with Xavier-uniform weight and zero bias.

    A matrix of several projections is initialised as one block, as in the code of Li et al. 2020: queries, keys and
    values of an attention layer are one `[3E, E]` block, so `xavier_outputs` is 3E even for parts stored separately.
    """
    layer = Linear(inputs, outputs, bias)
    bound = math.sqrt(6 / (inputs + (xavier_outputs or outputs)))
    nn.init.uniform_(layer.weight, -bound, bound)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
