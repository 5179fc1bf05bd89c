"""Measure this machine, for its table in docs/performance.md: `make bench-table`.

    python -m benchmarks.table [--quick] [--as avx2] [--threads N] [--out FOLDER]

Every family, without and with lexical shortcuts (feature fusion), in every precision: training, decoding of several
sentences, and of one sentence of 20 words, at the IWSLT size with 23 tokens on both sides; beside them the reference in
training, and CTranslate2, if installed, in decoding. All subjects of a task take turns. The one sentence is always the
same, with the recording of the previous run: the first one of a length takes longer, above all in int8. Seconds are CPU
time of the processes, with one thread, so that others on the machine disturb little. `--as` makes the processor behave
as an older kind, as far as libraries have settings for it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.comparing import Case, compare
from benchmarks.decoding import DecodingCase
from benchmarks.machine import description, product_rate
from benchmarks.machines import FOLDER, Row, table
from benchmarks.training import equal_pairs
from jointnmt.models import FAMILIES
from jointnmt.models.layers.shortcut import ShortcutKind
from jointnmt.ops.native import processor
from jointnmt.ops.native.prebuilt import KINDS, kind_of

TOKENS, LATENCY_TOKENS = 23, 21
"""Tokens of a sentence, end mark included."""
PRECISIONS = {
    "training": ("float32", "bfloat16"),
    "decoding": ("float32", "bfloat16", "int8"),
    "latency": ("float32", "bfloat16", "int8"),
}
TRAINED, DECODED = {"transformer": 22}, {"transformer": 16}
"""Sentence pairs of an update, and sentences decoded at once; FEWER for a family that computes a grid."""
FEWER = 4
AS_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}
"""Environment that turns off AVX-512 in PyTorch, its libraries and CTranslate2."""


def cases(size: str) -> Iterator[tuple[str, list[Case]]]:
    """Subjects that take turns, for each task of each family."""
    kinds: tuple[ShortcutKind | None, ...] = (None, "fusion")
    for family, shortcuts, task in product(FAMILIES, kinds, PRECISIONS):
        build = _training if task == "training" else _decoding
        group = [build(task, family, size, precision, shortcuts) for precision in PRECISIONS[task]]
        if shortcuts is None and task == "training":
            group.append(replace(group[0], implementation="reference"))
        if shortcuts is None and task != "training" and family == "transformer":
            group += [replace(group[number], implementation="ctranslate2") for number in (0, 2)]
        yield task, group


def _training(task: str, family: str, size: str, precision: str, shortcuts: ShortcutKind | None) -> Case:
    return equal_pairs(family, size, precision, TRAINED.get(family, FEWER), TOKENS, shortcuts)


def _decoding(task: str, family: str, size: str, precision: str, shortcuts: ShortcutKind | None) -> Case:
    one = task == "latency"
    lengths = (np.full(1 if one else DECODED.get(family, FEWER), LATENCY_TOKENS if one else TOKENS),)
    return DecodingCase(family, size, precision, "product", lengths, lengths, shortcuts=shortcuts)


def measure(size: str, rounds: int, threads: int) -> list[Row]:
    """A row for each subject: its names, and the work and process seconds of a run."""
    found = []
    for task, group in cases(size):
        for case, row in zip(group, compare(group, rounds, threads, profiled=False), strict=True):
            if "skipped" in row:
                print(f"skipped: {task} of {row['family']}, {row['implementation']}: {row['skipped']}", flush=True)
                continue
            names = {name: row[name] for name in ("family", "precision", "implementation")}
            done = {
                name: round(row[f"{name}_per_second"] * row["seconds"]) for name in ("cells", "sentences", "operations")
            }
            found.append(
                {"task": task, **names, "shortcuts": case.shortcuts, **done, "seconds": row["process_seconds"]}
            )
            print(
                "{task:9} {family:14} {shortcuts!s:7} {precision:9} {implementation:12} {seconds:8.3f} s".format(
                    **found[-1]
                ),
                flush=True,
            )
    return found


def behave_as(kind: str, arguments: Sequence[str]) -> int:
    """Run this program again, with libraries and kernels for another kind of processor; its exit code."""
    flags = next(each.flags for each in KINDS if each.name == kind)
    with tempfile.TemporaryDirectory() as folder:
        compiler = Path(folder) / "compiler"
        compiler.write_text(f'#!/bin/sh\nexec c++ "$@" {" ".join(flags)}\n')
        compiler.chmod(0o755)
        environment = {**os.environ, **AS_AVX2, "CXX": str(compiler), "XDG_CACHE_HOME": folder}
        command = [sys.executable, "-m", "benchmarks.table", *arguments, "--named", f"{kind}-emulated"]
        return subprocess.run(command, env=environment, check=False).returncode


def facts(named: str | None, size: str) -> dict[str, Any]:
    """The machine: its kind, rates and versions."""
    kind = kind_of(processor.description())
    rates = {name: product_rate(name).process / 1e9 for name in PRECISIONS["decoding"]}
    return {
        "kind": named or (kind.name if kind else torch.backends.cpu.get_cpu_capability().lower()),
        **description(),
        "ctranslate2": _version("ctranslate2"),
        "size": size,
        "rates": rates,
    }


def _version(package: str) -> str | None:
    """Version of an optional package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the file that the page is made from."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny models, one round: checks that everything runs")
    parser.add_argument("--as", dest="behaves_as", choices=["avx2"], help="kind of processor to behave as")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--named", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.behaves_as and not options.named:
        return behave_as(options.behaves_as, given)
    torch.set_num_threads(options.threads)
    size, rounds = ("tiny", 1) if options.quick else ("IWSLT", options.rounds)
    machine = facts(options.named, size)
    machine["rows"] = measure(size, rounds, options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{machine['kind']}.json"
    file.write_text(json.dumps(machine, indent=1) + "\n", encoding="utf-8")
    print(f"\n{table(machine)}\n{file}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
