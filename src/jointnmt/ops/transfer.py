"""Copies between devices."""

from __future__ import annotations

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A copy of a CPU tensor on another device, without waiting for the transfer (MPS would read it too late)."""
    return tensor.to(device, non_blocking=torch.device(device).type != "mps")
