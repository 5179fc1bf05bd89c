"""Linear layers for inference on a CPU, with packed weights and without gradients."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int8, Shaped
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.ops.autocast import no_autocast, to_autocast_dtype
from jointnmt.ops.backend import kernels_read, uses_kernels
from jointnmt.ops.fusing import fusable
from jointnmt.ops.native import library
from jointnmt.ops.native.calls import DTYPES, LANES, Int8Weights, Weights, call, empty, exact, has_gemm, rows_of
from jointnmt.ops.norm import Normed

LARGEST = 127
PANEL = 64
"""Most features whose weights are stored together."""


class PackedLinear(nn.Module):
    """A linear layer whose weights are stored in the order in which the kernels read them.

    Each row is multiplied separately, in a fixed order of summation: results do not depend on the number of rows.
    """

    kernels: ClassVar[str]
    """Suffix of the names of the layer's kernels."""
    structure: ClassVar[type[ctypes.Structure]]
    """The weights as an argument of these kernels."""

    def __init__(self, weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None) -> None:
        super().__init__()
        self.training = False
        self.out_features, self.in_features = weight.shape
        self._features = -(-self.out_features // LANES) * LANES  # the kernels', with features of padding
        self.bias = bias
        self.arranged: tuple[Tensor, ...] = ()
        """Weights in the layout that the kernels read, with their sums and scales; empty if there are no kernels."""

    @classmethod
    def of(cls, layer: nn.Module) -> nn.Module:
        """`layer`, which has weights and perhaps a bias, packed; unchanged if there are no kernels for it."""
        weight, bias = layer.weight, getattr(layer, "bias", None)
        assert isinstance(weight, Tensor)
        return cls(weight, bias) if cls.packs(weight) else layer

    @classmethod
    def packs(cls, weight: Float[Tensor, "F E"]) -> bool:
        """Whether such weights can be packed: there are kernels for them, or PyTorch multiplies them."""
        raise NotImplementedError

    @fusable
    def forward(self, x: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places F"]:
        """The product with the weights, plus the bias.

        Raises:
            ValueError: if `x` does not have E features; RuntimeError where PyTorch multiplies.
        """
        return self._multiply(x.value if isinstance(x, Normed) else x, self.bias)

    def product(self, x: Float[Tensor, "*places E"] | Normed) -> Float[Tensor, "*places F"]:
        """The product with the weights, without the bias."""
        return self._multiply(x.value if isinstance(x, Normed) else x, None)

    def mlp(self, x: Float[Tensor, "*places E"], output: Self) -> Float[Tensor, "*places G"]:
        """The feed-forward block `max(0, x W1 + b1) W2 + b2`, where `output` has W2 and b2; raises as `forward`."""
        if output.out_features % LANES or output.in_features != self.out_features:
            return output(self(x).relu())
        rows, x, bias, output_bias = self._rows_of(x), x.contiguous(), exact(self.bias), exact(output.bias)
        result = empty(x, *x.shape[:-1], output.out_features)
        weights = self.packed(bias), output.packed(output_bias)
        call("mlp" + self.kernels, x, rows, x, *map(ctypes.byref, weights), result)
        return result

    def _multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        rows, x, bias, features = self._rows_of(x), x.contiguous(), exact(bias), self._features
        if bias is not None and len(bias) < features:
            bias = functional.pad(bias, (0, features - len(bias)))
        result = empty(x, *x.shape[:-1], features)
        call("linear" + self.kernels, x, rows, x, ctypes.byref(self.packed(bias)), result)
        return result if features == self.out_features else result[..., : self.out_features]

    def _rows_of(self, x: Tensor) -> int:
        """Number of rows of `x`; checks its features, as kernels do not."""
        rows, inputs = rows_of(x)
        if inputs != self.in_features:
            raise ValueError(f"{inputs} features for a layer of {self.in_features}")
        return rows

    def packed(self, bias: Tensor | None) -> ctypes.Structure:
        """The weights for a call, with a bias that is `exact` and outlives it."""
        pointers = (each.data_ptr() for each in self.arranged)
        bias_pointer = None if bias is None else bias.data_ptr()
        weights = self.structure(*pointers, inputs=self.in_features, features=self._features, bias=bias_pointer)
        weights.kept = self.arranged, bias  # kept alive with a recording
        return weights

    def _pack(self, kind: str, weight: Shaped[Tensor, "F E"], *more: Tensor) -> Tensor:
        """The weights in whole panels, padded with zeros; the kernel for this `kind` also fills the `more` tensors."""
        rows = functional.pad(weight, (0, 0, 0, self._features - self.out_features)).contiguous()
        packed = rows.new_zeros(-(-self._features // PANEL) * PANEL, self.in_features)
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (rows, packed, *more))
        getattr(library(), f"pack_weights_{kind}")(*map(ctypes.c_long, rows.shape), *pointers)
        return packed


class FloatLinear(PackedLinear):
    """A linear layer in a fixed floating-point dtype, whatever the dtype of its input."""

    kernels, structure = "", Weights
    dtype: ClassVar[torch.dtype]

    def __init__(self, weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None) -> None:
        super().__init__(weight, bias)
        self.arranged = (self._pack(DTYPES[self.dtype], weight.detach().to(self.dtype)),)

    @classmethod
    def packs(cls, weight: Float[Tensor, "F E"]) -> bool:
        like = torch.empty(0, dtype=cls.dtype, device="cpu")
        return weight.device.type == "cpu" and kernels_read(like) and has_gemm(like.dtype, weight.shape[1])

    def mlp(self, x: Float[Tensor, "*places E"], output: Self) -> Float[Tensor, "*places G"]:
        return super().mlp(x.to(self.dtype), output)

    def _multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return super()._multiply(x.to(self.dtype), bias)


class Float32Linear(FloatLinear):
    """A packed linear layer in float32; unlike PyTorch's, its last digits do not depend on the number of rows."""

    dtype = torch.float32


class BFloat16Linear(FloatLinear):
    """A packed linear layer in bfloat16."""

    dtype = torch.bfloat16


class Int8Linear(PackedLinear):
    """A linear layer whose weights are integers from -127 to 127, with a scale for each output feature.

    Inputs are rounded likewise, with a scale for each row. Integers are multiplied and summed exactly; the output has
    the dtype of the input, or of autocast. Within a feed-forward block, hidden states stay in float until they are
    rounded. On processors without instructions for sums of four products (AVX2), inputs are rounded to -63 to 63, and
    hidden states to 0 to 127.
    """

    kernels, structure = "_int8", Int8Weights
    weight: Int8[Tensor, "F E"]
    scales: Float[Tensor, " F"]

    def __init__(self, weight: Float[Tensor, "F E"], bias: Float[Tensor, " F"] | None) -> None:
        super().__init__(weight, bias)
        weight, scales = _quantised(weight.detach().float())
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self._arrange()

    @classmethod
    def packs(cls, weight: Float[Tensor, "F E"]) -> bool:
        return True  # without kernels PyTorch multiplies integers

    def mlp(self, x: Float[Tensor, "*places E"], output: Self) -> Float[Tensor, "*places G"]:
        x = to_autocast_dtype(x)
        if uses_kernels(x, *self.weight.shape, output.out_features) and has_int8_gemm():
            return super().mlp(x, output)
        return output(self(x).relu())

    def _multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = to_autocast_dtype(x)
        if uses_kernels(x, self.in_features) and has_int8_gemm():
            return super()._multiply(x, bias)
        with torch.no_grad(), no_autocast(x):
            integers, scales = _quantised(x.flatten(0, -2).float())
            # As float32, in which such sums are exact for about a thousand inputs: PyTorch's products of integers are
            # slow without AVX-512, and overflow without VNNI.
            result = functional.linear(integers.float(), self.weight.float()) * scales[:, None] * self.scales
            if bias is not None:
                result += bias
            return result.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def _arrange(self) -> None:
        """Store the weights as the kernels read them, if there are kernels for them."""
        self.arranged = ()
        if not (self.weight.is_cpu and self.in_features % LANES == 0 and has_int8_gemm()):
            return
        scales = functional.pad(self.scales.float(), (0, self._features - self.out_features)).contiguous()
        sums = torch.empty(self._features, dtype=torch.int32, device="cpu")
        self.arranged = self._pack("int8", self.weight, sums), sums, scales

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._arrange()
        return self


def has_int8_gemm() -> bool:
    """Whether there are custom matrix products of 8-bit integers for this processor."""
    return hasattr(library(), "pack_weights_int8")


def _quantised(x: Float[Tensor, "N E"]) -> tuple[Int8[Tensor, "N E"], Float[Tensor, " N"]]:
    """Each row as integers, and its scale: the value of one integer step."""
    scales = x.abs().amax(dim=1) / LARGEST
    return (x / scales.clamp(min=torch.finfo(x.dtype).tiny)[:, None]).round().to(torch.int8), scales
