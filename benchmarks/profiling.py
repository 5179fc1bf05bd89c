"""Shares of the time of a run, by five groups of operations."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

GROUPS = (
    ("attention", r"attention(?!_pool)|bmm|::_?softmax"),
    (
        "matrix products",
        r"::(mm|addmm|_int_mm|linear|mkldnn_linear|mv|addmv)|mkldnn|onednn|gemm|qlinear|^native::mlp",
    ),
    ("copies", r"copy|::cat$|clone|contiguous|aten::(index|gather|scatter|fill|zero|stack|repeat|select_backward)"),
    ("update", r"adamw?_"),
    (
        "norm and element-wise",
        r"norm|::(add|sub|mul|div|neg|exp|log|sqrt|relu|threshold|sigmoid|maximum|sum|mean|amax|max|bernoulli|dropout"
        r"|masked|where|le|lt|gt|ge|eq|ne|rsqrt|pow|square|clamp|addcmul|logical|bitwise|isnan|native_dropout"
        r"|topk|sort|argsort|sigmoid_backward|threshold_backward|triu|_log_softmax)"
        r"|^native::(?!mlp)",
    ),
)
"""Patterns of each group's operation names; the first group that matches counts. Everything inside of an autograd
function of attention belongs to attention. Custom kernels are named `native::NAME`."""
REST = "rest"


def shares_of_time(run: Callable[[], None], device: str = "cpu") -> dict[str, float]:
    """Each group's share of the time of a run; `rest` is other operations and Python.

    An operation's time excludes that of the operations it calls; on a GPU it is that of its kernels, so that `rest`
    includes the idle time of the GPU. Most of the overhead of profiling is in `rest`.
    """
    on_card = device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_card else [])]
    with profile(activities=activities) as profiler:
        began = time.perf_counter()
        run()
        took = time.perf_counter() - began
    seconds: Counter[str] = Counter()
    for event in profiler.events() or ():
        if event.device_type.name == "CPU":  # a GPU's events are attributed to the operations that launched them
            microseconds = event.self_device_time_total if on_card else event.self_cpu_time_total
            seconds[_group(event)] += microseconds / 1e6
    shares = {name: seconds[name] / took for name, _ in GROUPS}
    return {**shares, REST: 1 - sum(shares.values())}


def group_of(name: str) -> str:
    """The group of a single operation."""
    return next((group for group, pattern in GROUPS if re.search(pattern, name)), REST)


def _group(event: Any) -> str:
    parent = event
    while parent is not None:
        if re.search(r"[Aa]ttention(?!_?[Pp]ool)", parent.name):
            return "attention"
        parent = parent.cpu_parent
    return group_of(event.name)
