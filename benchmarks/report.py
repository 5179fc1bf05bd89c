"""Output of a benchmark: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.comparing import Row
from benchmarks.machine import description

RATIOS = ("x reference", "(CPU)")
COLUMNS = {
    "training": (
        "GFLOP/s",
        "of rate",
        "(of CPU time)",
        "cells/s",
        "padding",
        "peak MiB",
        "kB/cell",
        "warm-up s",
        *RATIOS,
    ),
    "decoding": ("GFLOP/s", "of rate", "(of CPU time)", "sentences/s", "padding", "peak MiB", *RATIOS),
    "latency": ("GFLOP/s", "of rate", "(of CPU time)", "ms/sentence", "peak MiB", *RATIOS),
    "engines": ("sentences", "sentences/s", "ms/sentence", "peak MiB", "x CTranslate2", "(CPU)"),
    "growth": ("point", "ms", "GFLOP/s", "of rate", "peak MiB", "kB/cell", *RATIOS),
}
VALUES: dict[str, Any] = {
    "GFLOP/s": lambda row: f"{row['operations_per_second'] / 1e9:,.1f}",
    "of rate": lambda row: f"{row['share_of_product_rate']:.1%}",
    "(of CPU time)": lambda row: f"{row['share_of_product_rate_in_process_time']:.1%}",
    "cells/s": lambda row: f"{row['cells_per_second']:,.0f}",
    "sentences/s": lambda row: f"{row['sentences_per_second']:,.2f}",
    "ms/sentence": lambda row: f"{row['seconds_per_sentence'] * 1e3:,.0f}",
    "ms": lambda row: f"{row['seconds'] * 1e3:,.0f}",
    "padding": lambda row: f"{row['padded_share_of_cells']:.1%}",
    "warm-up s": lambda row: f"{row['warm_up_seconds']:,.0f}",
    "peak MiB": lambda row: f"{row['peak_bytes'] / 2**20:,.0f}" if "peak_bytes" in row else "",
    "kB/cell": lambda row: f"{row['bytes_per_cell'] / 1e3:,.0f}",
    "x reference": lambda row: _ratio(row.get("reference_seconds_over_seconds")),
    "(CPU)": lambda row: _ratio(row.get("reference_process_seconds_over_process_seconds")),
    "x CTranslate2": lambda row: _ratio(row.get("reference_seconds_over_seconds")),
    "sentences": lambda row: f"{row['sentences']} at once",
    "point": lambda row: f"{row['sentences']} of {row['length']} tokens, {row['task']}",
}


class Report:
    """Prints rows as they come, and after each writes all of them, with the machine, as JSON.

    Args:
        name: name of the benchmark and of its file.
        folder: folder of the file; None: only print.
        settings: settings that the figures depend on besides the machine.
        device: device of the measurement: cpu or cuda.
    """

    def __init__(self, name: str, folder: Path | None, settings: dict[str, Any], device: str = "cpu") -> None:
        self.name, self.rows = name, list[Row]()
        self.path = None if folder is None else folder / f"{name}.json"
        self.head = {**description(device), "settings": settings}
        # The recordings of decoding on a CPU, which a profiler turns off.
        self._how = " without recordings" if device == "cpu" and name != "training" else ""
        self._console = Console(highlight=False, width=120)
        versions = f"torch {self.head['torch']}, jointnmt {self.head['jointnmt']}, {self.head['date']}"
        self._console.print(f"{name}: {self.head['hardware']}, {self.head['threads']} threads, {versions}")

    def add(self, rows: Sequence[Row]) -> None:
        """Print and write more rows, which were measured side by side."""
        self.rows += rows
        if measured := [row for row in rows if "skipped" not in row]:
            self._console.print(self._table(measured))
        for row in rows:
            if "time" in row:
                parts = ", ".join(f"{part} {share:.0%}" for part, share in row["time"].items())
                self._console.print(f"  time of {row['implementation']}{self._how}: {parts}")
            if "skipped" in row:
                self._console.print(f"  skipped: {_title(row)}, {row['implementation']}: {row['skipped']}")
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps({**self.head, "rows": self.rows}, indent=1) + "\n", encoding="utf-8")

    def _table(self, rows: Sequence[Row]) -> Table:
        rate = max(row["product_rate"] for row in rows) / 1e9
        title = f"\n{_title(rows[0])} (matrix products: {rate:,.0f} GFLOP/s)"
        table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
        table.add_column("")
        for column in COLUMNS[self.name]:
            table.add_column(column, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(row["implementation"], *(VALUES[column](row) for column in COLUMNS[self.name]))
        return table


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _title(row: Row) -> str:
    return f"{row['family']}, {row['size']} size, {row['precision']}"
