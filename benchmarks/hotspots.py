"""The operations that take most of the time of training and decoding on a device.

    python -m benchmarks.hotspots [TASK ...] [--device cuda] [--out FOLDER] [--quick]

For every family in bfloat16 at the IWSLT size: one update or run under the profiler, its operations by their own time,
and their groups as in docs/performance.md. On a GPU the time is that of its kernels, and the rest of the whole is the
time that it waited; kernels of a CUDA graph, which no operation launches, count only in the sum. On a CPU, the profiler
turns off recordings of decoding, so its time is that without them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from torch.profiler import ProfilerActivity, profile

from benchmarks.decoding import DecodingCase
from benchmarks.machine import device_options, finish, write_figures
from benchmarks.profiling import group_of
from benchmarks.training import TrainingCase
from jointnmt.models import FAMILIES

TASKS = ("training", "decoding")
TOKENS, LISTED = 23, 30
WARM_UP_RUNS = 3
"""Warm-up runs; the second is captured as a CUDA graph."""


def hotspots(task: str, family: str, size: str, pairs: int, device: str) -> dict[str, Any]:
    """The operations of one run, after some runs of warm-up."""
    lengths = np.full(pairs, TOKENS)
    names = family, size, "bfloat16", "product"
    subject: Any = (
        TrainingCase(*names, lengths, lengths, pairs * TOKENS, None, updates=1, device=device)()  # type: ignore[arg-type]
        if task == "training"
        else DecodingCase(*names, (lengths,), (lengths,), device=device)()  # type: ignore[arg-type]
    )
    for _ in range(WARM_UP_RUNS):
        subject.run()
    finish(device)
    on_card = device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_card else [])]
    with profile(activities=activities) as profiler:
        began = time.perf_counter()
        subject.run()
        finish(device)
        took = time.perf_counter() - began
    own = "self_device_time_total" if on_card else "self_cpu_time_total"
    # The time of a GPU's kernels appears twice: as events of their own, and in the operations that launched them.
    found = list(profiler.key_averages())
    launched = [event for event in found if event.device_type.name == "CPU"]
    busy = [event for event in found if event.device_type.name == "CUDA" and not event.is_user_annotation]
    events = sorted(launched, key=lambda event: -getattr(event, own))
    return {
        "task": task,
        "family": family,
        "seconds": took,
        "busy_seconds": sum(getattr(event, own) for event in (busy if on_card else launched)) / 1e6,
        "operations": [
            {"name": each.key, "group": group_of(each.key), "calls": each.count, "seconds": getattr(each, own) / 1e6}
            for each in events[:LISTED]
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile, print the first operations of each, and write JSON if requested."""
    parser = device_options(__doc__, "tiny models")
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"default: {' '.join(TASKS)}")
    options = parser.parse_args(arguments)
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"there is no task {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
    size, pairs = ("tiny", 4) if options.quick else ("IWSLT", 178)
    rows = []
    for task, family in product(options.tasks or TASKS, FAMILIES):
        rows.append(hotspots(task, family, size, pairs, options.device))
        print("{task} of {family}: {seconds:.3f} s, operations {busy_seconds:.3f} s".format(**rows[-1]), flush=True)
        for each in rows[-1]["operations"][:8]:
            print("  {seconds:8.4f} s {calls:6} calls  {name}".format(**each), flush=True)
    if options.out:
        write_figures(options.out / "profile.json", options.device, size=size, pairs=pairs, rows=rows)


if __name__ == "__main__":
    main()
