"""Linear layers with 8-bit integer weights, for decoding on a CPU."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from jointnmt.native import operations

LARGEST = 127


class Int8Linear(nn.Module):
    """A linear layer whose weights are integers from -127 to 127, with a scale for each output feature.

    Inputs are rounded likewise, with a scale for each row; integers are multiplied and summed exactly, and what comes
    out is in the type of the input. Without gradient.
    """

    weight: Int8[Tensor, "F E"]
    scales: Float[Tensor, " F"]

    def __init__(self, linear: nn.Linear) -> None:
        """Take over the weights of a linear layer."""
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, scales = _quantised(linear.weight.detach().float())
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.bias = linear.bias

    def forward(self, x: Float[Tensor, "*places E"]) -> Float[Tensor, "*places F"]:
        return self.multiply(x, self.bias)

    @torch.no_grad()
    def multiply(self, x: Float[Tensor, "*places E"], bias: Float[Tensor, " F"] | None) -> Float[Tensor, "*places F"]:
        """The product with the weights, plus `bias`."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        rows = x.flatten(0, -2)
        result = x.new_empty(len(rows), self.out_features)
        if operations.usable(x, self.in_features, self.out_features):
            integers, scales = operations.quantise_rows(rows)
            operations.dequantise(torch._int_mm(integers, self.weight.t()), scales, self.scales, bias, result)
        else:
            integers, scales = _quantised(rows.float())
            exact = torch._int_mm(integers, self.weight.t()) * scales[:, None] * self.scales
            result.copy_(exact if bias is None else exact + bias)
        return result.view(*x.shape[:-1], self.out_features)


def _quantised(x: Float[Tensor, "N E"]) -> tuple[Int8[Tensor, "N E"], Float[Tensor, " N"]]:
    """Each row as integers, and what one of them is worth."""
    scales = x.abs().amax(dim=1) / LARGEST
    return (x / scales.clamp(min=torch.finfo(x.dtype).tiny)[:, None]).round().to(torch.int8), scales
