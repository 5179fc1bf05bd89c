"""Cost of lexical shortcuts in training: models with and without them, side by side in one run.

    python -m benchmarks.shortcuts [--rounds N] [--models FAMILY/SIZE ...] [--out FILE.json]

Prints, for each model, seconds of an update in bfloat16 with batches of equal sentence lengths, and their ratio to the
same model without shortcuts: medians over rounds, in each of which all models take their turn. Seconds are CPU time of
the process, with one thread, so that other processes on the machine disturb little.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparing import compare
from benchmarks.machine import write_figures
from benchmarks.training import TrainingCase, equal_pairs
from jointnmt.models import FAMILIES
from jointnmt.models.layers.shortcut import ShortcutKind

LENGTHS = {"IWSLT": 23, "Multi30k": 14, "tiny": 3}
"""Mean tokens of a sentence on either side."""
TOKENS = 1024
MODELS = [f"{family}/{size}" for size in ("IWSLT", "Multi30k") for family in FAMILIES]
KINDS: tuple[ShortcutKind | None, ...] = (None, "plain", "fusion")


def cases(family: str, size: str) -> list[TrainingCase]:
    """A model without shortcuts, and with each kind of them."""
    pairs = TOKENS // LENGTHS[size]
    return [equal_pairs(family, size, "bfloat16", pairs, LENGTHS[size], kind) for kind in KINDS]


def rows(family: str, size: str, rounds: int) -> list[dict[str, Any]]:
    """Time of a model's update with each kind of shortcuts."""
    group = cases(family, size)
    seconds = [row["process_seconds"] for row in compare(group, rounds, threads=1, profiled=False)]
    return [
        {"model": f"{family}/{size}", "shortcuts": case.shortcuts, "seconds": own, "ratio": own / seconds[0]}
        for case, own in zip(group, seconds, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write it as JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--models", nargs="*", default=MODELS, metavar="FAMILY/SIZE")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    measured = []
    for model in options.models:
        family, size = model.split("/")
        for row in rows(family, size, options.rounds):
            measured.append(row)
            print("{model:24} {shortcuts!s:7} {seconds:8.3f} s  x {ratio:.3f}".format(**row), flush=True)
    if options.out:
        write_figures(options.out, rows=measured)


if __name__ == "__main__":
    main()
