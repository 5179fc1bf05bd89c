"""Training beside busy processes: `python -m benchmarks.beside [--spins N ...] [--quick] [--out FILE]`.

A training with as many threads as there are cores, at the Multi30k size, alone and beside processes that compute
without end. A thread that waits at a barrier first spins so many times (GOMP_SPINCOUNT), and then sleeps. If cores are
shared, a spinning thread keeps the one that it waits for from running. Without a number, the package adapts it
(`jointnmt.ops.waiting`), and has three seconds for that before each measurement. The fair share of the training is that
of its threads among all that could run. Settings take turns; figures are medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import write_figures
from jointnmt.cores import cores_allowed

FAMILIES = ("transformer", "reformer-fast")
BESIDE = (0, 1, 2)
"""Busy processes."""
SPINS = (300_000, 1_000, 0, None)
"""Spins: the OpenMP runtime's default, fewer, none, and adapted by the package."""
ADAPTING_SECONDS = 3.0
TOKENS, PAIRS = 15, 32


def fair_share(threads: int, busy: int, cores: int) -> float:
    """Fraction of its speed alone that a training gets if cores are shared equally among all running threads."""
    return min(1.0, cores / (threads + busy))


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """Context with so many processes that compute without end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


class Trained:
    """A training in a process of its own, whose threads spin so many times."""

    def __init__(self, family: str, size: str, spins: int | None) -> None:
        command = [sys.executable, "-m", "benchmarks.beside", "--serve", family, size]
        set_elsewhere = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
        environment = {name: value for name, value in os.environ.items() if name not in set_elsewhere}
        if spins is not None:
            environment["GOMP_SPINCOUNT"] = str(spins)
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def run(self, seconds: float) -> dict[str, float]:
        """Train for so many seconds; cells a second of wall-clock time, and of a core's time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"a measured process ended with exit code {self._process.wait()}")
        return json.loads(answer)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def serve(family: str, size: str) -> None:
    """The measured process: for each line of standard input, train for that many seconds."""
    import numpy as np
    import torch

    from benchmarks.training import TrainingCase

    torch.set_num_threads(cores_allowed())
    lengths = np.full(10 * PAIRS, TOKENS)
    case = TrainingCase(
        family, size, "float32", "product", lengths, lengths, PAIRS * TOKENS, PAIRS * TOKENS**2, updates=1
    )
    training = case()
    for _ in range(3):
        training.run()
    print("{}", flush=True)
    for line in sys.stdin:
        cells, wall, used = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - wall < float(line):
            training.run()
            cells += training.work().cells
        wall, used = time.perf_counter() - wall, time.process_time() - used
        print(json.dumps({"rate": cells / wall, "rate_of_core": cells / used, "cores": used / wall}), flush=True)


def measure(spins: Sequence[int | None], size: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each family, setting and number of busy processes."""
    rows = []
    for family in FAMILIES:
        trained = {each: Trained(family, size, each) for each in spins}
        found: dict[tuple[int | None, int], list[dict[str, float]]] = {}
        for _, busy, each in product(range(rounds), BESIDE, spins):
            with beside(busy):
                trained[each].run(min(seconds, ADAPTING_SECONDS))
                found.setdefault((each, busy), []).append(trained[each].run(seconds))
        for process in trained.values():
            process.stop()
        alone = max(median(run["rate"] for run in found[each, 0]) for each in spins)
        for each, busy in product(spins, BESIDE):
            medians = {name: median(run[name] for run in found[each, busy]) for name in found[each, busy][0]}
            share = medians["rate"] / alone / fair_share(cores_allowed(), busy, cores_allowed())
            row: dict[str, Any] = {"family": family, "spins": each, "busy": busy, **medians, "of_fair_share": share}
            rows.append(row)
            print(
                "{family:14} spins {spins!s:>7}, beside {busy}: {rate:9,.0f} cells/s, {of_fair_share:4.0%} of the fair "
                "share, {cores:.2f} cores, {rate_of_core:9,.0f} cells a second of a core".format_map(row),
                flush=True,
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the rows, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spins", type=int, nargs="+", default=SPINS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny models, one short round: checks that it runs")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(*options.serve)
        return 0
    quick = options.quick
    rows = measure(options.spins, "tiny" if quick else "Multi30k", 1 if quick else options.rounds, 0.2 if quick else 5)
    if options.out:
        write_figures(options.out, threads=cores_allowed(), rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
