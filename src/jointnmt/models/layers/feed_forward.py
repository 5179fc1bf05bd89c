"""The point-wise feed-forward block (Li et al. 2020, Eq. 3)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.residual import Update
from jointnmt.ops.native import operations as native


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

    def forward(self, x: Float[Tensor, "B *places E"]) -> Update:
        dropout = self.hidden_dropout
        if self.drops_input:
            x = dropout(x)
        if native.usable(x, x.shape[-1], self.hidden.out_features):
            noise = None if self.drops_input else dropout.noise((*x.shape[:-1], self.hidden.out_features), x)
            return Update(native.feed_forward(x, self.hidden, self.output, noise), self.output.bias)
        hidden = functional.relu(self.hidden(x))
        return Update(self.output(hidden if self.drops_input else dropout(hidden)))
