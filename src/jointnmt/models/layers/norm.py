"""Layer norm, and what else mixed precision is to leave in the type it finds."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.ops.native import operations as native


def as_it_is(x: Tensor) -> torch.autocast:
    """The context of operations whose results have the type of `x`, mixed precision or not.

    On a GPU autocast computes norms, softmax and sums in float32 and passes that on, which for a state in bfloat16 is
    five times the memory traffic of a norm. The library's kernels add up in float32 all the same; what is rounded is
    what they hand on.
    """
    return torch.autocast(x.device.type, enabled=False)


class LayerNorm(nn.LayerNorm):
    """Layer norm in the type of its input."""

    def forward(self, x: Float[Tensor, "*places E"]) -> Float[Tensor, "*places E"]:
        if native.usable(x, x.shape[-1]):
            normed = native.residual_norm(x, None, None, None, self)[1]
            assert normed is not None
            return normed
        with as_it_is(x):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)
