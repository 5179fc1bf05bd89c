"""The point-wise feed-forward block (Li et al. 2020, Eq. 3)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.models.layers.dropout import SharedDropout


class FeedForward(nn.Module):
    """`max(0, x W1 + b1) W2 + b2`, with dropout on the hidden layer; the same for every position or cell.

    `drops_input` has the dropout on x instead, as in the authors' code of the lexical shortcuts.
    """

    def __init__(self, embed_dim: int, ffn_dim: int, dropout: SharedDropout, drops_input: bool = False) -> None:
        super().__init__()
        self.hidden = nn.Linear(embed_dim, ffn_dim)
        self.output = nn.Linear(ffn_dim, embed_dim)
        self.hidden_dropout = dropout
        self.drops_input = drops_input
        for linear in (self.hidden, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "*places E"]) -> Float[Tensor, "*places E"]:
        if self.drops_input:
            return self.output(functional.relu(self.hidden(self.hidden_dropout(x))))
        return self.output(self.hidden_dropout(functional.relu(self.hidden(x))))
