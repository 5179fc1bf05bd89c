"""The precision of a training: mixed precision, and which one is fastest here."""

from __future__ import annotations

from collections.abc import Mapping

import torch

WORTH = 1.05
"""How many times as fast as float32 bfloat16 has to be, to be taken: it rounds more, and measured rates vary."""


PRECISIONS = ("float32", "bfloat16")


def candidate_precisions(device: torch.device) -> tuple[str, ...]:
    """The precisions to choose from by measuring; on a GPU only one: bfloat16, unless it would be emulated."""
    if device.type != "cuda":
        return PRECISIONS
    return ("bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32",)


def faster_precision(rates: Mapping[str, float]) -> str:
    """The precision to train in, by what a second brings in each that was measured."""
    return "bfloat16" if rates.get("bfloat16", 0.0) > WORTH * rates.get("float32", 0.0) else "float32"
