"""The processor: what the system says of it, and what it computes fast."""

from __future__ import annotations

import ctypes
import functools
import platform
from pathlib import Path

import torch

AMX = ("amx_tile", "amx_bf16", "amx_int8")
ASK_FOR_AMX = (158, 0x1023, 18)
"""System call on x86-64 Linux: arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA."""


def description() -> str:
    """The processor's description, part of the key of a library: machines may share a cache directory."""
    described = _described()
    for feature in AMX if is_denied_amx() else ():
        described = described.replace(f" {feature}", "")
    return described


@functools.cache
def _described() -> str:
    """The system's description of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("vendor_id", "model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def name() -> str:
    """Name of the processor, as given by the system."""
    names = (line.partition(":")[2].strip() for line in _described().splitlines() if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def is_denied_amx() -> bool:
    """Whether it has AMX, which the system does not let this process use."""
    return "amx_bf16" in _described() and not may_use_amx()


@functools.cache
def may_use_amx() -> bool:
    """Request AMX tile registers from the system, once a process; whether they may be used."""
    if platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists():
        return False
    return bool(ctypes.CDLL(None).syscall(*map(ctypes.c_long, ASK_FOR_AMX)) == 0)


def has_fast_bf16_dot() -> bool:
    """Whether bfloat16 dot-product instructions, if there are any, have twice the throughput of float32 ones.

    On AMD's processors they do. On Intel's without AMX, or where a virtual machine hides it, they have half of it.
    """
    return "AuthenticAMD" in _described()


@functools.cache
def pytorch_is_faster_in_float32() -> bool:
    """Whether PyTorch's matrix products are faster than the custom ones: with MKL on Intel's processors.

    By vendor, not by a measurement: the two round differently, and a training that is resumed has to compute as before.
    """
    return "GenuineIntel" in _described() and torch.backends.mkl.is_available()
