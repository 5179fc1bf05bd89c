"""Custom CPU kernels, compiled on first use; without a compiler, PyTorch's operations serve.

What lies between the matrix products of a layer is memory traffic, and each of PyTorch's operations reads and writes
everything anew. `csrc/kernels.cpp` does it in few passes, and has matrix products that do some of it on their way.
`build` compiles, keeps, verifies and loads them. `JOINTNMT_NATIVE=0` turns them off.
"""

from jointnmt.ops.native.build import library, pytorch_is_faster_in_float32

__all__ = ["library", "pytorch_is_faster_in_float32"]
