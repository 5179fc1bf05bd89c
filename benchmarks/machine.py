"""The machine: its description, its rate of matrix products, and the memory of this process."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

import jointnmt

SQUARE = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the matrices whose product gives the device's rate."""


class Rate(NamedTuple):
    """Operations a second of wall-clock time, and of this process's time on all its cores."""

    wall: float
    process: float


def product_rate(precision: str, device: str = "cpu", square: int | None = None, repeats: int = 3) -> Rate:
    """Median rate of products of large square matrices; on a CPU, with the threads that torch has now.

    int8 is the library's product of two int8 matrices into int32.
    """
    if square is None:  # smaller if it would take more than half a second
        square, rate = SQUARE[device], product_rate(precision, device, 256, 1).wall
        while 4 * square**3 > rate and square > 256:
            square //= 2
    if precision == "int8":
        left, right = (torch.randint(-128, 127, (square, square), dtype=torch.int8, device=device) for _ in range(2))
    else:
        left, right = (torch.randn(square, square, dtype=getattr(torch, precision), device=device) for _ in range(2))
    _multiply(left, right)
    took = [_multiply(left, right) for _ in range(repeats)]
    return Rate(*(2 * square**3 / median(clock) for clock in zip(*took, strict=True)))


def _multiply(left: Tensor, right: Tensor) -> tuple[float, float]:
    finish(left.device.type)
    wall, process = time.perf_counter(), time.process_time()
    if left.dtype == torch.int8:
        torch._int_mm(left, right)
    else:
        left @ right
    finish(left.device.type)
    return time.perf_counter() - wall, time.process_time() - process


def finish(device: str) -> None:
    """Wait for the queued work of a device."""
    if device == "cuda":
        torch.cuda.synchronize()


def description(device: str = "cpu") -> dict[str, Any]:
    """Facts that figures depend on: hardware, threads, versions, commit, date, command line."""
    card = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, " if device == "cuda" else ""
    return {
        "hardware": f"{card}{_processor()}, {os.cpu_count()} cores, {_memory_bytes() / 2**30:.0f} GiB",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "jointnmt": jointnmt.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([Path(sys.executable).name, *sys.orig_argv[1:]]),
    }


def write_figures(file: Path, device: str = "cpu", **figures: Any) -> None:
    """Write figures as JSON, with the facts that they depend on; the folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**description(device), **figures}, indent=1) + "\n", encoding="utf-8")


def device_options(about: str | None, quick: str) -> argparse.ArgumentParser:
    """Command-line parser of a benchmark of a device: `--device`, `--out` for its figures, and `--quick`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cuda", "cpu"], default=device)
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help=f"{quick}: checks that everything runs")
    return parser


def commit() -> str:
    """Commit of the running code, with `-dirty` if it has changed since; `no commit` outside of a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_bytes(device: str = "cpu") -> int:
    """Bytes of the device's memory that this process has now."""
    return torch.cuda.memory_allocated() if device == "cuda" else _status("VmRSS")


def peak_bytes(device: str = "cpu") -> int:
    """Most bytes of the device's memory that this process has had.

    For a CPU from /proc if it exists, as getrusage starts from the peak of the process that started this one.
    """
    return torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")


def _status(name: str) -> int:
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(rf"{name}:\s*(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
