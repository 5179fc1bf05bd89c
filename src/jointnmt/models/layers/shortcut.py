"""Lexical shortcuts: gated connections from the embeddings into the keys and values of an attention layer.

Emelin, Titov, Sennrich 2019, "Widening the Representation Bottleneck in Neural Machine Translation with Lexical
Shortcuts". Queries are unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.models.layers.linear import Linear
from jointnmt.ops import gated_kv

ShortcutKind = Literal["plain", "fusion"]


class Shortcut(nn.Module):
    """Keys and values as a gated mixture of a lexical and a hidden part, feature by feature.

    With E the lexical input and H the hidden one, the plain kind projects each separately (Eqs. 5-8); feature fusion
    projects their concatenation (Eqs. 13-14), here as the sum of a projection of E and one of H: the first half of its
    features is called lexical, the second hidden. Then, for keys and for values (Eqs. 9-12):

        gate = sigmoid(lexical + hidden + bias)
        mixed = gate * lexical + (1 - gate) * hidden

    The gate has no weight matrices. The projection of H belongs to the attention layer; it yields `hidden_size`
    features: `[K, V]` for the plain kind, lexical `[K, V]` and hidden `[K, V]` for fusion.
    """

    def __init__(self, embed_dim: int, kind: ShortcutKind) -> None:
        super().__init__()
        self.fusion = kind == "fusion"
        self.hidden_size = 4 * embed_dim if self.fusion else 2 * embed_dim
        self.lexical = Linear(embed_dim, self.hidden_size, bias=False)
        self.gate_bias = nn.Parameter(torch.empty(2, embed_dim))
        """Gate bias of keys, then of values."""
        self.bound = math.sqrt(6 / (4 * embed_dim))
        """Bound of the uniform initial weights, also of the hidden input's: Xavier's for a `[2E, 2E]` block of fusion,
        or a `[3E, E]` block of queries, keys and values."""
        nn.init.uniform_(self.lexical.weight, -self.bound, self.bound)
        nn.init.uniform_(self.gate_bias, -math.sqrt(3 / embed_dim), math.sqrt(3 / embed_dim))  # as in the authors' code

    def project(self, embedded: Float[Tensor, "*places E"]) -> Float[Tensor, "*places F"]:
        """Projection of the lexical input, or of a summand of it, to `hidden_size` features."""
        return self.lexical(embedded)

    def forward(
        self,
        hidden: Float[Tensor, "*places F"],
        lexical: Sequence[Float[Tensor, "*_ F"]],
        gates: list[Tensor] | None = None,
    ) -> Float[Tensor, "*places EE"]:
        """Keys, then values, mixed from the projected hidden and lexical inputs.

        Args:
            hidden: projected hidden input, of `hidden_size` features.
            lexical: summands of the projected lexical input (see `project`), each broadcast to the places.
            gates: if given, the gates `[*places, 2, E]` of keys, then of values, are appended.
        """
        return gated_kv(hidden, lexical, self.gate_bias, self.fusion, gates)


def lexical_summands(
    shortcut: Shortcut | None, embedded: Float[Tensor, "B *places E"]
) -> tuple[Float[Tensor, "B *places F"], ...]:
    """The lexical input of an attention layer, projected by its shortcut: one summand; none without a shortcut."""
    return () if shortcut is None else (shortcut.project(embedded),)
