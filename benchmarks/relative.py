"""Speed of decoding relative to the Transformer: Table 3 of Li et al. (2020) beside measured machines, with reasons.

    python -m benchmarks.relative

Nothing is timed: speeds come from `benchmarks/machines`, operations from `benchmarks/counting.py`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import torch

from benchmarks.machines import AUTHORS, FOLDER
from benchmarks.sizes import SIZES, model_config
from benchmarks.traffic import Counting
from jointnmt.models import FAMILIES, build_model
from jointnmt.ops import backend

FIRST, *OTHERS = FAMILIES
PAPER = {"reformer-base": 0.52, "reformer-fast": 0.73}
"""The paper's speeds, on a GPU with half precision."""
TOKENS, BEAM = 23, 5
TASKS = {"decoding": "several sentences at once", "latency": "one sentence"}


def relative_table() -> str:
    """A row for each measurement, count or prediction of decoding; a column for each family."""
    head = f"| decoding, speed relative to the Transformer | {' | '.join(OTHERS)} |\n{'|---' * (1 + len(OTHERS))}|\n"
    return head + "".join(f"| {name} | {' | '.join(map(speed, OTHERS))} |\n" for name, speed in _rows())


def arithmetic_table() -> str:
    """Share of the time that the useful products would take at the machine's rate of products, in float32."""
    head = f"| share of the time that is arithmetic | {' | '.join(FAMILIES)} |\n{'|---' * (1 + len(FAMILIES))}|\n"
    lines = []
    for machine, task in product(_machines(), TASKS):
        shares = (f"{_arithmetic(machine, task, family):.0%}" for family in FAMILIES)
        lines.append(f"| {machine['kind']}, {TASKS[task]} | {' | '.join(shares)} |\n")
    return head + "".join(lines)


def _rows() -> Iterator[tuple[str, Callable[[str], str]]]:
    yield "paper, Titan V, float16", lambda family: f"{PAPER[family]:.2f}"
    yield "authors' code, 2 cores, AVX2, float32", _ratio(lambda family: 1 / AUTHORS["decoding", family])
    for machine, task in product(_machines(), TASKS):
        yield f"here, {machine['kind']}, {TASKS[task]}, float32", _ratio(partial(_seconds, machine, task))
    yield "if only the number of PyTorch's operations counted", _ratio(_launches)
    yield "if only multiplications counted", _ratio(partial(_operations, _machines()[0], "decoding"))


def _ratio(cost: Callable[[str], float]) -> Callable[[str], str]:
    return lambda family: f"{cost(FIRST) / cost(family):.2f}"


def _machines() -> list[dict[str, Any]]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))]


def _row(machine: dict[str, Any], task: str, family: str) -> dict[str, Any]:
    wanted = {"task": task, "family": family, "precision": "float32", "implementation": "product", "shortcuts": None}
    (row,) = (row for row in machine["rows"] if wanted.items() <= row.items())
    return row


def _seconds(machine: dict[str, Any], task: str, family: str) -> float:
    row = _row(machine, task, family)
    return float(row["seconds"] / row["sentences"])


def _operations(machine: dict[str, Any], task: str, family: str) -> float:
    row = _row(machine, task, family)
    return float(row["operations"] / row["sentences"])


def _arithmetic(machine: dict[str, Any], task: str, family: str) -> float:
    return _operations(machine, task, family) / _seconds(machine, task, family) / machine["rates"]["float32"] / 1e9


@cache
def _launches(family: str) -> int:
    """Launches of a position in eager PyTorch, at the paper's depths; they do not depend on width or batch."""
    narrow = SIZES["tiny"].settings | SIZES["IWSLT"].depths[family]
    model = build_model(model_config(family, "tiny", **narrow), 40, 40).eval()
    counting, ids = Counting(rate=1.0, bandwidth=1.0), torch.full((BEAM,), 4)
    with backend("plain"), torch.no_grad():
        state = model.start(torch.full((1, TOKENS), 4)).select(torch.zeros(BEAM, dtype=torch.long))
        _, state = model.step(ids, state)
        with counting:
            model.step(ids, state)
    return counting.launches


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(relative_table(), arithmetic_table(), sep="\n", end="")
