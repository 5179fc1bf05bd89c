"""Number of cores that a process may use; in containers and batch systems, fewer than the machine has."""

from __future__ import annotations

import os
from pathlib import Path

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""CPU quota of a container (Linux, cgroup v2): microseconds of processor time per period, and the period."""


def cores_allowed() -> int:
    """Number of cores that this process may run on, limited by its CPU quota, rounded up."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        allowed, period = CPU_LIMIT.read_text().split()
        return usable if allowed == "max" else min(usable, max(1, -(-int(allowed) // int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return usable
