"""How many cores a process may use, which in containers and batch systems are fewer than the machine has."""

from __future__ import annotations

import os
from pathlib import Path

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""Of a container: microseconds of processor time in each period, and the period; Linux, control groups 2."""


def cores_allowed() -> int:
    """Those this process may run on, and no more than it may take the time of, rounded up."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        allowed, period = CPU_LIMIT.read_text().split()
        return usable if allowed == "max" else min(usable, max(1, -(-int(allowed) // int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return usable
