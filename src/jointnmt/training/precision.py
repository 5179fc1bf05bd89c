"""The precision of a training: mixed precision, and the choice of the fastest one."""

from __future__ import annotations

from collections.abc import Mapping

import torch

WORTH = 1.05
"""Least speed-up over float32 at which bfloat16 is chosen: it rounds more, and measured rates vary."""


PRECISIONS = ("float32", "bfloat16")


def candidate_precisions(device: torch.device) -> tuple[str, ...]:
    """Precisions to choose from by measuring; on a GPU only bfloat16, or float32 if bfloat16 would be emulated."""
    if device.type != "cuda":
        return PRECISIONS
    return ("bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32",)


def faster_precision(rates: Mapping[str, float]) -> str:
    """The precision to train in, by measured rates (higher is faster)."""
    return "bfloat16" if rates.get("bfloat16", 0.0) > WORTH * rates.get("float32", 0.0) else "float32"
