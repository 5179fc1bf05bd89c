"""This checkout against another one: process time and memory of training and decoding, taking turns.

    python -m benchmarks.paired --against CHECKOUT [--tasks training decoding] [--starts N] [--rounds N] [--out FILE]

Both checkouts compute the same batches, which is checked, each in a process of its own with one thread, and swap
places in every round. Both processes are started several times, as the speed of the same code differs by 2 to 3% from
process to process, whatever the number of rounds. They start in alternating order, as of two processes of the same code
the first one may be 2% slower; so the number of starts is even. A line of the table is one family, size and precision.
Its ratio is the other checkout's seconds over this one's (above 1: this one is faster): the median over rounds for each
start, and of these the median, with the lowest and the highest. Memory is this one's peak over the other's, both beyond
that before the first run, and also the median over starts. Seconds are CPU time of the processes, so that others on the
machine disturb little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1]
FAMILIES = ("transformer", "reformer-base", "reformer-fast")
PRECISIONS = {"training": ("float32", "bfloat16"), "decoding": ("float32", "bfloat16", "int8")}


class Checkout:
    """A process that runs the code of a checkout on demand."""

    def __init__(self, folder: Path, asked: dict[str, Any], stack: ExitStack) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1"}
        # With -P, the benchmarks are those of the checkout, not those beside this file.
        command = [sys.executable, "-P", __file__, "--serve", json.dumps(asked)]
        self._process = stack.enter_context(
            subprocess.Popen(
                command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(self._process.kill)
        self.base_bytes = self._answer()["base_bytes"]

    def run(self) -> dict[str, Any]:
        """Do one run; its seconds of the process, the peak memory so far, and the work done."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"a measured process ended with exit code {self._process.wait()}")
        return json.loads(answer)


class Start(NamedTuple):
    """Result of one start of both processes."""

    ratio: float
    """The other's seconds over this one's, the median over rounds."""
    memory: float
    seconds: float
    """Seconds of this checkout, the median over rounds."""


def compare(other: Path, asked: dict[str, Any], starts: int, rounds: int) -> dict[str, Any]:
    """A row: one case of both checkouts."""
    found = [start(other, asked, rounds, here_first=number % 2 == 0) for number in range(starts)]
    ratios, memories, seconds = zip(*found, strict=True)
    return {
        **{name: asked[name] for name in ("task", "family", "size", "precision")},
        "ratio": median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "memory": median(memories),
        "seconds": median(seconds),
    }


def start(other: Path, asked: dict[str, Any], rounds: int, here_first: bool) -> Start:
    """Start a process for each checkout, which take turns.

    Raises:
        SystemExit: if they have not done the same work.
    """
    with ExitStack() as stack:
        folders = (HERE, other) if here_first else (other, HERE)
        pair = {folder: Checkout(folder, asked, stack) for folder in folders}
        here, there = pair[HERE], pair[other]
        ours, theirs = [], []
        for number in range(rounds):
            found = {each: each.run() for each in ([here, there] if number % 2 else [there, here])}
            if found[here]["work"] != found[there]["work"]:
                raise SystemExit(f"other work: {found[here]['work']} here, {found[there]['work']} in {other}")
            ours.append(found[here])
            theirs.append(found[there])
        memory = (ours[-1]["peak_bytes"] - here.base_bytes) / max(theirs[-1]["peak_bytes"] - there.base_bytes, 1)
    seconds = [each["seconds"] for each in ours]
    ratio = median(its["seconds"] / mine for its, mine in zip(theirs, seconds, strict=True))
    return Start(ratio, memory, median(seconds))


def rows(other: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each requested case."""
    for task, family, size in product(options.tasks, options.families, options.sizes):
        for precision in PRECISIONS[task]:
            if options.precisions is None or precision in options.precisions:
                asked = {"task": task, "family": family, "size": size, "precision": precision}
                limits = {"max_tokens": options.max_tokens, "updates": options.updates, "batches": options.batches}
                yield compare(other, {**asked, **limits}, options.starts, options.rounds)


def serve(asked: dict[str, Any]) -> None:
    """The measured process: warm up, then a run for every line of the input."""
    import time  # only this process needs these, from the checkout that it measures
    from dataclasses import replace

    import torch

    from benchmarks.__main__ import case
    from benchmarks.machine import peak_bytes, resident_bytes
    from jointnmt.training.memory import bound_kernel_cache, keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    bound_kernel_cache()
    tokens = asked["max_tokens"]
    limits: Any = SimpleNamespace(
        device="cpu", batches=asked["batches"], batch_size=16, max_tokens=tokens, max_cells=max(24 * tokens, 10_000)
    )
    built = case(asked["task"], (asked["family"], asked["size"], asked["precision"]), "product", limits)
    if asked["task"] == "training":
        built = replace(built, updates=asked["updates"])
    subject = built()
    _answer({"base_bytes": resident_bytes("cpu") + subject.late_bytes})
    for _ in range(min(subject.warm_up_runs, 3)):
        subject.run()
    for _ in sys.stdin:
        began = time.process_time()
        subject.run()
        seconds, done = time.process_time() - began, subject.work()
        work = {"operations": done.operations, "cells": done.cells}
        _answer({"seconds": seconds, "peak_bytes": peak_bytes("cpu"), "work": work})


def _answer(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write it as JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="a checkout of the code to compare with")
    parser.add_argument("--tasks", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--sizes", nargs="+", default=["IWSLT", "Multi30k"], metavar="SIZE")
    parser.add_argument("--precisions", nargs="+", metavar="PRECISION", help="default: all")
    parser.add_argument("--starts", type=int, default=4, help="starts of the processes, an even number")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each start")
    parser.add_argument("--max-tokens", type=int, default=256, help="tokens of a training batch, which is an update")
    parser.add_argument("--updates", type=int, default=2, help="updates of a round of training")
    parser.add_argument("--batches", type=int, default=1, help="batches of 16 sentences of a round of decoding")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
        return
    if options.starts % 2:
        parser.error("--starts must be an even number")
    if options.against is None or not (options.against / "src").is_dir():
        parser.error("--against needs a checkout: a folder with src in it")
    found = []
    for row in rows(options.against.resolve(), options):
        found.append(row)
        print(
            "{task:9} {family:14} {size:9} {precision:9} x {ratio:.3f} ({lowest:.3f} to {highest:.3f})  "
            "memory x {memory:.3f}  {seconds:.2f} s".format(**row),
            flush=True,
        )
    if options.out:
        from benchmarks.machine import write_figures  # not above: a measured process imports those of its checkout

        write_figures(options.out, threads=1, against=str(options.against), rows=found)


if __name__ == "__main__":
    main()
