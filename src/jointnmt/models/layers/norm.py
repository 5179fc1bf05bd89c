"""Layer norm."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.ops import fusable, layer_norm


class LayerNorm(nn.LayerNorm):
    """Layer norm in the dtype of its input, even under autocast."""

    @fusable
    def forward(self, x: Float[Tensor, "*places E"]) -> Float[Tensor, "*places E"]:
        return layer_norm(x, self)
