"""Cost of trained systems: time of an epoch's updates and of translating, in turns, relative to the first one.

    python -m benchmarks.systems NAME=RUN NAME=RUN ... --text FILE [--precision bfloat16] [--lines N] [--rounds N]
        [--out FILE.json]

Each RUN is trained again for some updates of its own recipe, its dropout included, but all in one precision, and
translates lines of a text with the search of its recipe in float32, with one thread. In each round all take their turn.
Seconds are CPU time of this process, so that others on the machine disturb little. Seconds and ratios are medians over
rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.machine import write_figures
from jointnmt.data.store import build_store
from jointnmt.runs.directory import RunDirectory
from jointnmt.training.devices import launch_fabric
from jointnmt.training.memory import bound_kernel_cache, keep_freed_memory
from jointnmt.training.speed import untrained
from jointnmt.translator import Translator

UPDATES = 8
"""Updates of a turn of training."""


def training(run: Path, precision: str) -> Callable[[], float]:
    """Function that makes some updates in this precision, and returns seconds for 1,000 target pieces."""
    translator = Translator.load(run, "cpu")
    experiment, segmentation = translator.experiment, translator.segmentation
    store = build_store(experiment.data, segmentation)
    # Whatever its recipe says, as CPU time is measured.
    fabric = launch_fabric(experiment.training.model_copy(update={"accelerator": "cpu"}))
    steps = untrained(experiment, precision, fabric, segmentation, store).steps()

    def turn() -> float:
        began = time.process_time()
        pieces = sum(report.sums.target_tokens for report in islice(steps, UPDATES))
        return 1000 * (time.process_time() - began) / pieces

    return turn


def translating(run: Path, lines: Sequence[str]) -> Callable[[], float]:
    """Function that translates all lines, and returns seconds for 1,000 of them."""
    translator = Translator.load(run, "cpu")

    def turn() -> float:
        began = time.process_time()
        translator.translate(lines)
        return 1000 * (time.process_time() - began) / len(lines)

    return turn


def by_turns(subjects: dict[str, Callable[[], float]], rounds: int) -> dict[str, dict[str, float]]:
    """Medians of each subject, and of its ratio to the first one, after a turn of warm-up."""
    for turn in subjects.values():
        turn()
    found = [{name: turn() for name, turn in subjects.items()} for _ in range(rounds)]
    first = next(iter(subjects))
    return {
        name: {
            "seconds": median(each[name] for each in found),
            "ratio": median(each[name] / each[first] for each in found),
        }
        for name in subjects
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write it as JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN", help="the others are compared with the first")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="lines to translate")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of every training")
    parser.add_argument("--lines", type=int, default=200, help="number of lines, from the beginning")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    keep_freed_memory()
    bound_kernel_cache()
    runs = {name: Path(path) for name, _, path in (each.partition("=") for each in options.runs)}
    lines = options.text.read_text(encoding="utf-8").splitlines()[: options.lines]
    tasks = {
        "training": {name: training(run, options.precision) for name, run in runs.items()},
        "translating": {name: translating(run, lines) for name, run in runs.items()},
    }
    found: dict[str, Any] = {task: by_turns(subjects, options.rounds) for task, subjects in tasks.items()}
    for name in runs:
        row = [f"{task} {found[task][name]['seconds']:.3f} s, x {found[task][name]['ratio']:.2f}" for task in tasks]
        print(f"{name:24} {'   '.join(row)}", flush=True)
    if options.out:
        dropout = {name: RunDirectory(run).read_experiment().model.dropout for name, run in runs.items()}
        trained = {"precision": options.precision, "dropout": dropout}
        write_figures(options.out, **trained, lines=len(lines), rounds=options.rounds, systems=found)


if __name__ == "__main__":
    main()
