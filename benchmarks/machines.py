"""Tables of docs/performance.md from the measured machines: `benchmarks/machines`, one file for each kind of processor.

A file has the figures of `benchmarks.table` on one machine; figures of different machines are never in one table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "machines"
SLOWER = 0.95
"""Margin by which a precision must be slower than float32 to be reported as slower."""

AUTHORS_SIZE, AUTHORS_RATE = "IWSLT", 139.0
"""GFLOP/s of float32 products where the authors' code was measured: two cores of an AMD EPYC of 2021, AVX2, in one run
with the package; IWSLT size, 23 tokens."""
AUTHORS = {
    ("training", "reformer-fast"): 2240.0,
    ("decoding", "transformer"): 25.0,
    ("decoding", "reformer-base"): 1.7,
    ("decoding", "reformer-fast"): 2.0,
}
"""The authors' code: cells a second of training, sentences a second with beam 5, both in float32."""

HEAD = (
    "| | training: cells/s | of rate | x authors' | x reference | bfloat16 | decoding: sentences/s | x authors' "
    "| x CTranslate2 | bfloat16 | int8 | one sentence: ms | x CTranslate2 | bfloat16 | int8 |\n" + "|---" * 15 + "|\n"
)
Row = dict[str, Any]


def machine_tables(folder: Path = FOLDER) -> str:
    """The tables of all machines."""
    return "\n".join(table(json.loads(file.read_text(encoding="utf-8"))) for file in sorted(folder.glob("*.json")))


def table(machine: dict[str, Any]) -> str:
    """One machine: its description, and a row for each family, without and with lexical shortcuts."""
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in machine["rates"].items())
    engine = f"CTranslate2 {machine['ctranslate2']}, " if machine.get("ctranslate2") else ""  # not told at first
    head = (
        f"**{machine['kind']}**: {machine['hardware']}; {_threads(machine['threads'])}. Products, GFLOP/s: {rates}. "
        f"torch {machine['torch']}, {engine}jointnmt {machine['jointnmt']} ({machine['commit']}), "
        f"{machine['date'][:10]}, `{machine['command']}`.\n\n"
    )
    subjects = dict.fromkeys((row["family"], row["shortcuts"]) for row in machine["rows"])
    return head + HEAD + "".join(map(_line(machine), subjects)) + f"\n{_traps(machine)}\n"


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def _line(machine: dict[str, Any]) -> Callable[[tuple[str, str | None]], str]:
    rate, comparable = machine["rates"]["float32"], machine["size"] == AUTHORS_SIZE

    def line(subject: tuple[str, str | None]) -> str:
        family, shortcuts = subject
        cells = [family + (f", {shortcuts}" if shortcuts else "")]
        for task in ("training", "decoding", "latency"):
            found = {
                (row["precision"], row["implementation"]): row
                for row in machine["rows"]
                if (row["family"], row["shortcuts"], row["task"]) == (family, shortcuts, task)
            }
            cells += _figures(task, found, rate, AUTHORS.get((task, family)) if comparable and not shortcuts else None)
        return "| " + " | ".join(cells) + " |\n"

    return line


def _figures(task: str, found: dict[tuple[str, str], Row], rate: float, theirs: float | None) -> Iterator[str]:
    """Figures of one task: in float32, ratios to other implementations, and other precisions against it."""
    own = found["float32", "product"]
    if task == "latency":
        yield f"{own['seconds'] * 1e3:,.0f}"
    else:
        per_second = own["cells" if task == "training" else "sentences"] / own["seconds"]
        yield f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.2f}"
        if task == "training":
            yield f"{own['operations'] / own['seconds'] / rate / 1e9:.0%}"
        yield "" if theirs is None else f"{per_second / rate / (theirs / AUTHORS_RATE):.2f}"
    if task == "training":
        yield _ratio(own, found.get(("float32", "reference")))
    else:
        pairs = [(found.get((name, "product")), found.get((name, "ctranslate2"))) for name in ("float32", "int8")]
        yield ", ".join(filter(None, (_ratio(*pair) for pair in pairs)))
    for precision in ("bfloat16", "int8")[: 1 if task == "training" else 2]:
        yield _ratio(found.get((precision, "product")), own)


def _ratio(row: Row | None, other: Row | None) -> str:
    """Speed relative to the other, as a factor."""
    return "" if row is None or other is None else f"{other['seconds'] / row['seconds']:.2f}"


def _traps(machine: dict[str, Any]) -> str:
    """A sentence on the precisions that are slower than float32 by more than the margin."""
    names = ("task", "family", "shortcuts")
    product = [row for row in machine["rows"] if row["implementation"] == "product"]
    own = {tuple(row[name] for name in names): row for row in product if row["precision"] == "float32"}
    slow = [
        f"{row['precision']} in {row['task']} of {row['family']}{', ' + row['shortcuts'] if row['shortcuts'] else ''}"
        for row in product
        if own[tuple(row[name] for name in names)]["seconds"] / row["seconds"] < SLOWER
    ]
    return f"Slower than float32 by more than 5%: {'; '.join(slow) or 'no precision'}."
