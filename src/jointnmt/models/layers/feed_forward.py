"""The point-wise feed-forward block (Li et al. 2020, Eq. 3)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.layers.linear import Linear
from jointnmt.ops import Biased, Normed, mlp_update


class FeedForward(nn.Module):
    """`max(0, x W1 + b1) W2 + b2`, with dropout on the hidden layer; the same for every position or cell.

    With `drops_input`, dropout is on x instead, as in the code of Emelin et al. 2019.
    """

    def __init__(self, embed_dim: int, ffn_dim: int, dropout: SharedDropout, drops_input: bool = False) -> None:
        super().__init__()
        self.hidden = Linear(embed_dim, ffn_dim)
        self.output = Linear(ffn_dim, embed_dim)
        self.input_dropout = dropout if drops_input else None
        self.hidden_dropout = SharedDropout(0.0) if drops_input else dropout
        for linear in (self.hidden, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "B *places E"] | Normed) -> Biased:
        if self.input_dropout is not None and self.input_dropout.active:
            x = self.input_dropout(x.value if isinstance(x, Normed) else x)
        return mlp_update(x, self.hidden, self.output, self.hidden_dropout)
