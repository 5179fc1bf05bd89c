"""Arrays of numbers in JSON as base64 of their bytes, which is exact, smaller and faster to read than digits."""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

Packing = Literal["float32", "unorm16"]

LARGEST = 65535


def packed(array: Float[np.ndarray, "*_"], packing: Packing = "float32") -> dict[str, Any]:
    """An array as JSON-compatible values, little-endian, its last dimension varying fastest.

    `unorm16`, for numbers from 0 to 1: unsigned integers of 16 bits, in units of 1/65535.
    """
    values = array.astype("<f4") if packing == "float32" else np.rint(array.clip(0, 1) * LARGEST).astype("<u2")
    return {
        "shape": list(array.shape),
        "dtype": packing,
        "data": base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii"),
    }
