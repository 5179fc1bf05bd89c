"""Filtering segmented sentence pairs, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from jointnmt.data.filters import FilterConfig, FilterReport

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.integer[Any]]
DigestArray = npt.NDArray[np.uint64]


def keep_by_length(
    config: FilterConfig,
    source_lengths: IntArray,
    target_lengths: IntArray,
    origin: Callable[[int], str],
    report: FilterReport,
) -> BoolArray:
    """True for each pair of a chunk whose lengths are allowed; the others are counted by the first reason.

    Args:
        config: the filters.
        source_lengths: pieces of each source, end mark included.
        target_lengths: pieces of each target, end mark included.
        origin: returns the `file:line` of the chunk's i-th pair.
        report: counts what is removed.
    """
    shorter, longer = np.minimum(source_lengths, target_lengths), np.maximum(source_lengths, target_lengths)
    kept = np.ones(len(shorter), dtype=np.bool_)
    _remove(kept, shorter < config.min_length, f"shorter than {config.min_length} pieces", origin, report)
    if config.max_length is not None:
        _remove(kept, longer > config.max_length, f"longer than {config.max_length} pieces", origin, report)
    if config.max_ratio is not None:
        beyond = longer > config.max_ratio * shorter
        _remove(kept, beyond, f"length ratio above {config.max_ratio:g}", origin, report)
    return kept


def _remove(kept: BoolArray, bad: BoolArray, cause: str, origin: Callable[[int], str], report: FilterReport) -> None:
    gone = np.flatnonzero(kept & bad)
    if len(gone):
        report.remove(cause, origin(int(gone[0])), len(gone))
        kept[gone] = False


class SeenDigests:
    """A set of 64-bit digests with 8 bytes each (and up to 16 bytes more while it grows).

    Sorted arrays, each at least twice as long as the next, so that `n` insertions cost O(n log n) in total.
    """

    def __init__(self) -> None:
        self._runs: list[DigestArray] = []

    def add(self, digests: DigestArray) -> BoolArray:
        """True for each digest that is new: not added before, and the first of its value here."""
        values, first = np.unique(digests, return_index=True)
        known = np.zeros(len(values), dtype=np.bool_)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, values), len(run) - 1)
            known |= run[places] == values
        fresh = np.zeros(len(digests), dtype=np.bool_)
        fresh[first[~known]] = True
        self._insert(values[~known])
        return fresh

    def _insert(self, run: DigestArray) -> None:
        if not len(run):
            return
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        self._runs.append(run)
