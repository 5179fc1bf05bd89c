"""Custom CPU kernels, shipped or compiled on first use; without them, PyTorch's operations are used.

Between the matrix products of a layer, time goes into memory traffic, and each of PyTorch's operations reads and writes
everything again. `csrc/kernels.cpp` needs few passes, and fuses some of the work into matrix products of its own.
`build` compiles, stores, verifies and loads the kernels. `JOINTNMT_NATIVE=0` turns them off.
"""

from jointnmt.ops.native.build import library

__all__ = ["library"]
