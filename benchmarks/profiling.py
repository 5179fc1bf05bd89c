"""Where the time goes: the operations of a run, in five groups."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch.profiler import ProfilerActivity, profile, record_function

from jointnmt.ops.native import calls, library

GROUPS = (
    ("attention", r"attention|attend|bmm|::_?softmax"),
    (
        "matrix products",
        r"::(mm|addmm|_int_mm|linear|mkldnn_linear|mv|addmv)|mkldnn|onednn|gemm|qlinear|^native::feed_forward",
    ),
    ("copies", r"copy|::cat$|clone|contiguous|aten::(index|gather|scatter|fill|zero|stack|repeat|select_backward)"),
    ("update", r"adamw?_"),
    (
        "norm and element-wise",
        r"norm|::(add|sub|mul|div|neg|exp|log|sqrt|relu|threshold|sigmoid|maximum|sum|mean|amax|max|bernoulli|dropout"
        r"|masked|where|le|lt|gt|ge|eq|ne|rsqrt|pow|square|clamp|addcmul|logical|bitwise|isnan|native_dropout"
        r"|topk|sort|argsort|sigmoid_backward|threshold_backward|triu|_log_softmax)"
        r"|^native::(?!feed_forward)",
    ),
)
"""Each group's operations, by a pattern of their names: the first group that matches has them. Whatever runs inside of
an autograd function of attention belongs to attention. Kernels of our own are called `native::` and their name."""
REST = "rest"


def shares_of_time(run: Callable[[], None], device: str = "cpu") -> dict[str, float]:
    """Each group's share of the time of a run; `rest` is other operations, and Python.

    An operation's time is its own, without that of the operations it calls; on a GPU it is that of its kernels, so that
    `rest` is also what the card has idled. Profiling itself costs time, which falls to `rest` for the most part.
    """
    on_card = device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_card else [])]
    with _named_kernels(), profile(activities=activities) as profiler:
        began = time.perf_counter()
        run()
        took = time.perf_counter() - began
    seconds: Counter[str] = Counter()
    for event in profiler.events() or ():
        if event.device_type.name == "CPU":  # a GPU's own events are told of by the operations that caused them
            microseconds = event.self_device_time_total if on_card else event.self_cpu_time_total
            seconds[_group(event)] += microseconds / 1e6
    shares = {name: seconds[name] / took for name, _ in GROUPS}
    return {**shares, REST: 1 - sum(shares.values())}


def group_of(name: str) -> str:
    """The group of an operation by itself."""
    return next((group for group, pattern in GROUPS if re.search(pattern, name)), REST)


@contextmanager
def _named_kernels() -> Iterator[None]:
    """Let the profiler see the calls of our own kernels."""
    kernels = library()
    if kernels is None:
        yield
        return
    with patch.object(calls, "library", lambda: _NamedKernels(kernels)):
        yield


class _NamedKernels:
    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        return _NamedKernel(getattr(self._kernels, name), f"native::{name}")


class _NamedKernel:
    """A kernel whose calls are operations of the profile."""

    def __init__(self, kernel: Any, name: str) -> None:
        vars(self).update(kernel=kernel, name=name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.kernel, name, value)

    def __call__(self, *arguments: Any) -> Any:
        with record_function(self.name):
            return self.kernel(*arguments)


def _group(event: Any) -> str:
    parent = event
    while parent is not None:
        if re.search(r"[Aa]ttention", parent.name):
            return "attention"
        parent = parent.cpu_parent
    return group_of(event.name)
