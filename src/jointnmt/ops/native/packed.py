"""Linear layers for inference on a CPU, with packed weights; all are without gradient."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.ops.autocast import to_autocast_dtype
from jointnmt.ops.backend import kernels_read, uses_kernels
from jointnmt.ops.native import library
from jointnmt.ops.native.calls import LANES, Int8Weights, Weights, call, empty, exact, has_gemm, rows_of
from jointnmt.ops.norm import Normed

LARGEST = 127
PANEL = 64
"""Features whose weights lie together."""


class PackedLinear(nn.Module):
    """A linear layer whose weights lie as the kernels read them."""

    kernels: ClassVar[str]
    """What the names of its kernels end with."""

    def __init__(self, weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias

    def forward(self, x: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places F"]:
        """The product with the weights, plus the bias."""
        return self._multiply(x.value if isinstance(x, Normed) else x, self.bias)

    def product(self, x: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places F"]:
        """The product with the weights, without the bias."""
        return self._multiply(x.value if isinstance(x, Normed) else x, None)

    def mlp(self, x: Float[Tensor, "*places E"], output: Self) -> Float[Tensor, "*places E"]:
        """The feed-forward block `max(0, x W1 + b1) W2 + b2`, where `output` has W2 and b2."""
        x, bias, output_bias = x.contiguous(), exact(self.bias), exact(output.bias)
        result = empty(x, *x.shape[:-1], output.out_features)
        weights = self.packed(bias), output.packed(output_bias)
        call("mlp" + self.kernels, x, rows_of(x)[0], x, *map(ctypes.byref, weights), result)
        return result

    def _multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x, bias = x.contiguous(), None if bias is None else exact(bias)
        features = -(-self.out_features // LANES) * LANES
        if bias is not None and len(bias) < features:
            bias = functional.pad(bias, (0, features - len(bias)))
        result = empty(x, *x.shape[:-1], features)
        call("linear" + self.kernels, x, rows_of(x)[0], x, ctypes.byref(self.packed(bias)), result)
        return result if features == self.out_features else result[..., : self.out_features]

    def packed(self, bias: Tensor | None) -> ctypes.Structure:
        """The weights for a call, with a bias that is `exact` and outlives it."""
        raise NotImplementedError


class BFloat16Linear(PackedLinear):
    """A linear layer in bfloat16, whatever the type of its input."""

    kernels = ""

    def __init__(self, weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None) -> None:
        super().__init__(weight, bias)
        weight = functional.pad(weight.detach(), (0, 0, 0, -self.out_features % LANES)).bfloat16().contiguous()
        kind = torch.float32 if _kernel("packs_as_float")() else torch.bfloat16
        self._weight = torch.zeros(-(-len(weight) // PANEL) * PANEL * self.in_features, dtype=kind)
        self._features = len(weight)
        _pack("bfloat16", *weight.shape, weight, self._weight)

    @classmethod
    def of(cls, layer: nn.Module) -> nn.Module:
        """A layer with weights and perhaps a bias, packed; the layer itself, if there are no kernels for it."""
        weight, bias = layer.weight, getattr(layer, "bias", None)
        assert isinstance(weight, Tensor)
        like = torch.empty(0, dtype=torch.bfloat16)
        exists = weight.device.type == "cpu" and kernels_read(like) and has_gemm(like.dtype, weight.shape[1])
        return cls(weight, bias) if exists else layer

    def mlp(self, x: Float[Tensor, "*places E"], output: Self) -> Float[Tensor, "*places E"]:
        return super().mlp(x.bfloat16(), output)

    def _multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return super()._multiply(x.bfloat16(), bias)

    def packed(self, bias: Tensor | None) -> ctypes.Structure:
        """The weights for a call, with a bias that is `exact` and outlives it."""
        return Weights(
            self._weight.data_ptr(), self.in_features, self._features, None if bias is None else bias.data_ptr()
        )


class Int8Linear(PackedLinear):
    """A linear layer whose weights are integers from -127 to 127, with a scale for each output feature.

    Inputs are rounded likewise, with a scale for each row; integers are multiplied and summed exactly, and what comes
    out is in the type of the input, or of mixed precision. Between the layers of a feed-forward block, hidden states
    stay in float until they are rounded.
    """

    kernels = "_int8"
    weight: Int8[Tensor, "F E"]
    scales: Float[Tensor, " F"]

    def __init__(self, linear: nn.Linear) -> None:
        """Take over the weights of a linear layer."""
        super().__init__(linear.weight, linear.bias)
        weight, scales = _quantised(linear.weight.detach().float())
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self._packed: tuple[Tensor, ...] | None = None

    def mlp(self, x: Float[Tensor, "*places E"], output: Self) -> Float[Tensor, "*places E"]:
        x = to_autocast_dtype(x)
        if uses_kernels(x, *self.weight.shape, output.out_features) and has_int8_gemm():
            return super().mlp(x, output)
        return output(self(x).relu())  # type: ignore[no-any-return]

    def _multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = to_autocast_dtype(x)
        if uses_kernels(x, *self.weight.shape) and has_int8_gemm():
            return super()._multiply(x, bias)
        with torch.no_grad():
            integers, scales = _quantised(x.flatten(0, -2).float())
            result = torch._int_mm(integers, self.weight.t()) * scales[:, None] * self.scales
            if bias is not None:
                result += bias
            return result.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def packed(self, bias: Tensor | None) -> ctypes.Structure:
        """The weights for a call, with a bias that is `exact` and outlives it."""
        if self._packed is None:
            weight = torch.zeros(-(-self.out_features // PANEL) * PANEL, self.in_features, dtype=torch.int8)
            offsets = torch.empty(self.out_features, dtype=torch.int32)
            _pack("int8", *self.weight.shape, self.weight.contiguous(), weight, offsets)
            self._packed = weight, offsets, self.scales.float().contiguous()
        pointers = (tensor.data_ptr() for tensor in self._packed)
        return Int8Weights(*pointers, None if bias is None else bias.data_ptr(), self.in_features, self.out_features)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self._packed = None
        return super()._apply(fn, recurse)


def has_int8_gemm() -> bool:
    """Whether there are custom matrix products of 8-bit integers for this processor."""
    return hasattr(library(), "pack_weights_int8")


def _kernel(name: str) -> Any:
    return getattr(library(), name)


def _pack(kind: str, features: int, inputs: int, *tensors: Tensor) -> None:
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors)
    _kernel(f"pack_weights_{kind}")(ctypes.c_long(features), ctypes.c_long(inputs), *pointers)


def _quantised(x: Float[Tensor, "N E"]) -> tuple[Int8[Tensor, "N E"], Float[Tensor, " N"]]:
    """Each row as integers, and what one of them is worth."""
    scales = x.abs().amax(dim=1) / LARGEST
    return (x / scales.clamp(min=torch.finfo(x.dtype).tiny)[:, None]).round().to(torch.int8), scales
