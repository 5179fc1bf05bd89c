"""Subjects side by side: rounds in which each takes its turn, and their figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, get_args

from benchmarks.decoding import DecodingCase
from benchmarks.engines import ENGINE, refusal
from benchmarks.machine import Rate, product_rate
from benchmarks.processes import Round, SubjectLostError, Worker
from benchmarks.training import TrainingCase
from jointnmt.models.quantize import Precision

Case = TrainingCase | DecodingCase
Row = dict[str, Any]
"""A subject's names and figures, or in place of figures `skipped` with the reason."""
OF_MEMORY = ("base_bytes", "peak_bytes", "bytes_per_cell")


class Turns:
    """The turns of a case, in a process of its own that lives as long as `stack`."""

    def __init__(self, case: Case, stack: ExitStack, threads: int) -> None:
        self.case = case
        self.skipped = _refusal(case)
        """Reason why there are no figures."""
        self.rounds: list[tuple[Round, Rate]] = []
        """Rounds, each with the machine's rate just before."""
        self.time: dict[str, float] = {}
        if not self.skipped:
            with self._skipping_lost():
                self.worker = stack.enter_context(Worker(case, threads))

    def take(self, rate: Rate) -> None:
        """One round."""
        with self._skipping_lost():
            self.rounds.append((self.worker.run(), rate))

    def profile(self) -> None:
        """Add the shares of time of one more run."""
        with self._skipping_lost():
            self.time = self.worker.profile()

    @contextmanager
    def _skipping_lost(self) -> Iterator[None]:
        """Record the loss of the process as the reason for no figures, so that the other subjects continue."""
        try:
            yield
        except SubjectLostError as lost:
            self.skipped = str(lost)

    def row(self, reference: Turns | None) -> Row:
        """Names and figures of the case; ratios are to the reference."""
        names = {name: getattr(self.case, name) for name in ("family", "size", "precision", "implementation")}
        if self.skipped:
            return {**names, "skipped": self.skipped}
        figures = _figures(self, reference)
        if self.case.implementation == ENGINE:  # its process also holds the product's model, which was exported
            figures = {name: value for name, value in figures.items() if name not in OF_MEMORY}
        return {**names, **figures, **({"time": self.time} if self.time else {})}


def compare(cases: Sequence[Case], rounds: int, threads: int, profiled: bool = True) -> list[Row]:
    """A row for each case, from `rounds` rounds; ratios are to the reference or CTranslate2, if it is among them."""
    with ExitStack() as stack:
        turns = [Turns(case, stack, threads) for case in cases]
        for _ in range(rounds):
            live = [turn for turn in turns if not turn.skipped]
            kinds = {(turn.case.precision, turn.case.device) for turn in live}
            rates = {kind: product_rate(*kind) for kind in kinds}
            for turn in live:
                turn.take(rates[turn.case.precision, turn.case.device])
        for turn in turns:
            if profiled and not turn.skipped:
                turn.profile()
    others = ("reference", ENGINE)
    reference = next((turn for turn in turns if turn.case.implementation in others and not turn.skipped), None)
    return [turn.row(reference) for turn in turns]


def _refusal(case: Case) -> str | None:
    """Reason why a case cannot be measured; None: it can."""
    if isinstance(case, DecodingCase) and case.precision not in get_args(Precision):
        return f"the translator does not know {case.precision}, only {', '.join(get_args(Precision))}"
    if isinstance(case, DecodingCase) and case.implementation == ENGINE:
        return refusal(case)
    if case.precision == "int8" and (case.implementation == "reference" or case.device != "cpu"):
        return "int8 is for the product on a CPU"
    return None


def _figures(turns: Turns, reference: Turns | None) -> Row:
    """Medians over rounds: seconds of a run, and rates per second."""
    done, rates = zip(*turns.rounds, strict=True)
    work = [each.work for each in done]
    base, peak = turns.worker.base_bytes, max(each.peak_bytes for each in done)
    cells = sum(each.cells for each in work)
    row = {
        "rounds": len(done),
        "seconds": median(each.seconds for each in done),
        "process_seconds": median(each.process_seconds for each in done),
        "warm_up_seconds": turns.worker.warm_up_seconds,
        "operations_per_second": median(each.work.operations / each.seconds for each in done),
        "product_rate": median(rate.wall for rate in rates),
        "share_of_product_rate": median(each.work.operations / each.seconds / rate.wall for each, rate in turns.rounds),
        "share_of_product_rate_in_process_time": median(
            each.work.operations / each.process_seconds / rate.process for each, rate in turns.rounds
        ),
        "cells_per_second": median(each.work.cells / each.seconds for each in done),
        "sentences_per_second": median(each.work.sentences / each.seconds for each in done),
        "seconds_per_sentence": median(each.seconds / each.work.sentences for each in done),
        "padded_share_of_cells": 1 - cells / sum(each.padded_cells for each in work),
        "base_bytes": base,
        "peak_bytes": peak,
        "bytes_per_cell": max(peak - base, 0) / max(each.peak_cells for each in done),
    }
    if reference is not None:
        pairs = list(zip(reference.rounds, turns.rounds, strict=True))
        row["reference_seconds_over_seconds"] = median(its.seconds / own.seconds for (its, _), (own, _) in pairs)
        row["reference_process_seconds_over_process_seconds"] = median(
            its.process_seconds / own.process_seconds for (its, _), (own, _) in pairs
        )
    return row
