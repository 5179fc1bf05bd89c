"""Linear layers for decoding on a CPU, whose weights lie as the kernels read them. All are without gradient."""

from __future__ import annotations

from typing import Any, Self

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.native import calls, operations

LARGEST = 127


class BFloat16Linear(nn.Module):
    """A linear layer in bfloat16."""

    def __init__(self, weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        missing = -self.out_features % calls.LANES
        self._packed = operations.pack_bfloat16(functional.pad(weight, (0, 0, 0, missing)))

    @classmethod
    def of(cls, layer: nn.Module) -> nn.Module:
        """The layer with its weights packed; itself, if there are no kernels for it."""
        weight, bias = layer.weight, getattr(layer, "bias", None)
        assert isinstance(weight, Tensor)
        like = torch.empty(0, dtype=torch.bfloat16)
        exists = operations.usable(like, weight.shape[1]) and calls.has_products(like)
        return cls(weight, bias) if exists and weight.device.type == "cpu" else layer

    def forward(self, x: Float[Tensor, "*places E"]) -> Float[Tensor, "*places F"]:
        return self.multiply(x, self.bias)

    @torch.no_grad()
    def multiply(self, x: Float[Tensor, "*places E"], bias: Float[Tensor, " F"] | None) -> Float[Tensor, "*places F"]:
        """The product with the weights, plus `bias`."""
        result = operations.bfloat16_linear(x.bfloat16(), self._packed, bias)
        return result[..., : self.out_features]

    @torch.no_grad()
    def feed_forward(self, x: Float[Tensor, "*places E"], output: BFloat16Linear) -> Float[Tensor, "*places E"]:
        """`max(0, x W1 + b1) W2`, where `output` has W2."""
        return operations.bfloat16_feed_forward(x.bfloat16(), self._packed, self.bias, output._packed)


class Int8Linear(nn.Module):
    """A linear layer whose weights are integers from -127 to 127, with a scale for each output feature.

    Inputs are rounded likewise, with a scale for each row; integers are multiplied and summed exactly, and what comes
    out is in the type of the input.
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
        self._packed: operations.PackedInt8 | None = None

    def forward(self, x: Float[Tensor, "*places E"]) -> Float[Tensor, "*places F"]:
        return self.multiply(x, self.bias)

    @torch.no_grad()
    def multiply(self, x: Float[Tensor, "*places E"], bias: Float[Tensor, " F"] | None) -> Float[Tensor, "*places F"]:
        """The product with the weights, plus `bias`."""
        x = _compute_type(x)
        if operations.usable(x, self.in_features, self.out_features) and operations.has_int8_products():
            return operations.int8_linear(x, self.packed(), bias)
        integers, scales = _quantised(x.flatten(0, -2).float())
        result = torch._int_mm(integers, self.weight.t()) * scales[:, None] * self.scales
        if bias is not None:
            result += bias
        return result.to(x.dtype).view(*x.shape[:-1], self.out_features)

    @torch.no_grad()
    def feed_forward(self, x: Float[Tensor, "*places E"], output: Int8Linear) -> Float[Tensor, "*places E"]:
        """`max(0, x W1 + b1) W2`, where `output` has W2; hidden states stay in float until they are rounded."""
        x = _compute_type(x)
        sizes = self.in_features, self.out_features, output.out_features
        if operations.usable(x, *sizes) and operations.has_int8_products():
            return operations.int8_feed_forward(x, self.packed(), self.bias, output.packed())
        return output.multiply(self(x).relu(), None)

    def packed(self) -> operations.PackedInt8:
        """The weights as the kernels read them."""
        if self._packed is None:
            self._packed = operations.pack_int8(self.weight, self.scales)
        return self._packed

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self._packed = None
        return super()._apply(fn, recurse)


def _compute_type(x: Tensor) -> Tensor:
    """In the type of mixed precision, if that is on."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x


def _quantised(x: Float[Tensor, "N E"]) -> tuple[Int8[Tensor, "N E"], Float[Tensor, " N"]]:
    """Each row as integers, and what one of them is worth."""
    scales = x.abs().amax(dim=1) / LARGEST
    return (x / scales.clamp(min=torch.finfo(x.dtype).tiny)[:, None]).round().to(torch.int8), scales
