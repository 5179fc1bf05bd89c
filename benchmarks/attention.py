"""Attention along the lines of a grid on a device: PyTorch's fused kernels against batched products.

    python -m benchmarks.attention [--device cuda] [--out FOLDER] [--quick]

Causal self-attention of 4 heads of 64 in bfloat16, forward and backward. Lines of every length have the same number of
cells in total: sentences are short, and fused kernels are made for long ones. Times are medians over calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.machine import device_options, finish, write_figures

HEADS, SIZE = 4, 64
LENGTHS = (12, 23, 46, 92)
CELLS, REPEATS = 94_208, 20
"""Cells: 4,096 tokens in lines of 23. Repeats: timed calls."""
FUSED = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def batched(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention as two batched products with a softmax between them."""
    length = query.shape[-2]
    bias = torch.full((length, length), -torch.inf, dtype=query.dtype, device=query.device).triu_(1)
    weights = (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias).softmax(-1)
    return weights @ value


def fused(kind: SDPBackend | None, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention by one of PyTorch's kernels; None: by the one that it chooses."""
    with nullcontext() if kind is None else sdpa_kernel([kind]):
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def seconds(attend: Attention, lines: int, length: int, device: str, repeats: int) -> float:
    """Median time of a call with its backward pass, given the output's gradient.

    Raises:
        RuntimeError: if there is no such kernel for this device.
    """
    query, key, value, gradient = torch.randn(4, lines, HEADS, length, SIZE, dtype=torch.bfloat16, device=device)
    leaves = [each.requires_grad_() for each in (query, key, value)]
    took = []
    for _ in range(repeats + 2):
        finish(device)
        began = time.perf_counter()
        torch.autograd.grad(attend(*leaves), leaves, gradient)
        finish(device)
        took.append(time.perf_counter() - began)
    return median(took[2:])


def measure(device: str, cells: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each length and kernel, the slowest and unsupported ones included."""
    kinds: dict[str, Attention] = {"batched": batched, "chosen": partial(fused, None)}
    kinds |= {name: partial(fused, kind) for name, kind in FUSED.items()}
    rows = []
    for length in LENGTHS:
        for name, attend in kinds.items():
            row: dict[str, Any] = {"length": length, "lines": cells // length, "kernel": name}
            try:
                row["seconds"] = seconds(attend, cells // length, length, device, repeats)
            except RuntimeError as error:
                row["skipped"] = str(error).partition("\n")[0]
            rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON if asked to."""
    options = device_options(__doc__, "few cells").parse_args(arguments)
    cells, repeats = (2_000, 2) if options.quick else (CELLS, REPEATS)
    rows = measure(options.device, cells, repeats)
    base = {row["length"]: row["seconds"] for row in rows if row["kernel"] == "batched"}
    for row in rows:
        told = row.get("skipped") or "{:.3f} ms, x {:.2f}".format(
            1e3 * row["seconds"], base[row["length"]] / row["seconds"]
        )
        print(f"{row['lines']:6} lines of {row['length']:3}  {row['kernel']:17} {told}", flush=True)
    if options.out:
        write_figures(options.out / "attention.json", options.device, cells=cells, rows=rows)


if __name__ == "__main__":
    main()
