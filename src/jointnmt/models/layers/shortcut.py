"""Lexical shortcuts: gated connections from the embeddings into the keys and values of an attention layer.

Emelin, Titov, Sennrich 2019, "Widening the Representation Bottleneck in Neural Machine Translation with Lexical
Shortcuts". Queries are untouched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.ops.native import operations as native

ShortcutKind = Literal["plain", "fusion"]


@dataclass(frozen=True)
class Lexical:
    """What one attention layer's shortcut mixes into its keys and values."""

    parts: tuple[Float[Tensor, ...], ...]
    """Summands of the projected lexical input (`Shortcut.project`), each broadcast to the places of the layer. On a
    grid, the input is the sum of a source and a target side, and so is its projection: S + T positions are projected,
    not S * T cells."""
    hidden: Float[Tensor, ...] | None = None
    """What keys and values are made of, where that is not what queries are made of."""
    gates: list[Tensor] | None = None
    """If given, the gates `[*places, 2, E]` are appended: of the keys, then of the values."""


class Shortcut(nn.Module):
    """Keys and values as a gated mixture of a lexical and a hidden part, feature by feature.

    With E the lexical input and H the hidden one, the plain kind projects each by itself (Eqs. 5-8); feature fusion
    projects their concatenation (Eqs. 13-14), here as one sum of a projection of E and one of H, whose first half of
    features is called lexical and whose second hidden. Then, for keys and for values (Eqs. 9-12):

        gate = sigmoid(lexical + hidden + bias)
        mixed = gate * lexical + (1 - gate) * hidden

    The gate has no matrices of its own. The projection of H belongs to the attention layer; it yields `hidden_size`
    features: `[K, V]` of the plain kind, `[K, V]` lexical and `[K, V]` hidden of fusion.
    """

    def __init__(self, embed_dim: int, kind: ShortcutKind) -> None:
        super().__init__()
        self.fusion = kind == "fusion"
        self.hidden_size = 4 * embed_dim if self.fusion else 2 * embed_dim
        self.lexical = nn.Linear(embed_dim, self.hidden_size, bias=False)
        self.gate_bias = nn.Parameter(torch.empty(2, embed_dim))
        """Of keys, then of values."""
        self.bound = math.sqrt(6 / (4 * embed_dim if self.fusion else 2 * embed_dim))
        """Of the uniform initial weights: Xavier's for an `[E, E]` block, or a `[2E, 2E]` block of fusion."""
        nn.init.uniform_(self.lexical.weight, -self.bound, self.bound)
        nn.init.uniform_(self.gate_bias, -math.sqrt(3 / embed_dim), math.sqrt(3 / embed_dim))  # as the authors' code

    def project(self, embedded: Float[Tensor, "*places E"]) -> Float[Tensor, "*places F"]:
        """The lexical input, or a summand of it, as `hidden_size` features."""
        projected: Tensor = self.lexical(embedded)
        return projected

    def of(
        self,
        embedded: Float[Tensor, "*places E"],
        hidden: Float[Tensor, "*places E"] | None = None,
        gates: list[Tensor] | None = None,
    ) -> Lexical:
        """What `forward` needs, from one lexical input with a vector for each place."""
        return Lexical((self.project(embedded),), hidden, gates)

    def forward(self, hidden: Float[Tensor, "*places F"], lexical: Lexical) -> Float[Tensor, "*places EE"]:
        """Keys, then values, of the projected hidden input's `hidden_size` features."""
        mixed: Tensor
        if native.usable(hidden, self.gate_bias.shape[-1]):
            bias, wants_gates = self.gate_bias.flatten(), lexical.gates is not None
            mixed, gates = native.mixture(hidden, bias, self.fusion, lexical.parts, wants_gates)
        else:
            mixed, gates = _Mixture.apply(hidden, self.gate_bias, self.fusion, *lexical.parts)
        if lexical.gates is not None and gates is not None:
            lexical.gates.append(gates.unflatten(-1, (2, -1)))
        return mixed


class _Mixture(torch.autograd.Function):
    """Eqs. 9-12 in few passes over the places, and the same backwards; the gates are returned too."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, bias: Tensor, fusion: bool, *parts: Tensor) -> tuple[Tensor, Tensor]:
        lexical = sum(parts[1:], start=parts[0])
        if fusion:
            lexical, hidden = (lexical + hidden).chunk(2, dim=-1)
        gates = (hidden + lexical).add_(bias.flatten().to(hidden.dtype)).sigmoid_()
        difference = lexical - hidden
        ctx.save_for_backward(gates, difference)
        ctx.bias_shape, ctx.fusion, ctx.part_shapes = bias.shape, fusion, [part.shape for part in parts]
        ctx.mark_non_differentiable(gates)
        return torch.addcmul(hidden, gates, difference), gates

    @staticmethod
    def backward(ctx: Any, d_mixed: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        gates, difference = ctx.saved_tensors
        d_sum = torch.ops.aten.sigmoid_backward(d_mixed * difference, gates)  # of lexical + hidden + bias
        d_lexical = torch.addcmul(d_sum, d_mixed, gates)
        d_hidden = torch.addcmul(d_mixed + d_sum, d_mixed, gates, value=-1)
        d_bias = d_sum.flatten(0, -2).sum(0).view(ctx.bias_shape)
        if ctx.fusion:
            d_lexical = d_hidden = torch.cat([d_lexical, d_hidden], dim=-1)
        return d_hidden, d_bias, None, *(d_lexical.sum_to_size(shape) for shape in ctx.part_shapes)
