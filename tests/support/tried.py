"""The table of what was tried against the project, and what failed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

SCALE = int(os.environ.get("JOINTNMT_FAULTS", "1"))
"""How many times the short tier: the seeded faults of each kind are so many more."""

long_tier = pytest.mark.skipif(SCALE == 1, reason="takes a minute: make faults")
"""Marks what the short tier leaves out."""

Tried = Callable[[str, int, int], None]
"""Takes a fault, how often it was tried, and how often something failed then."""


@pytest.fixture
def tried(record_property: Callable[[str, Any], None]) -> Tried:
    """What counts in the table."""
    return lambda fault, count, failed: record_property("tried", [fault, count, failed])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table, in the form in which it stands in docs/reliability.md."""
    rows: dict[str, list[int]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ():
                if name == "tried":
                    fault, *counts = value
                    rows[fault] = [sum(both) for both in zip(rows.get(fault, [0, 0]), counts, strict=True)]
    if rows:
        terminalreporter.section("what was tried")
        lines = ["| fault | tried | failed |", "|---|---:|---:|"]
        lines += [f"| {fault} | {count:,} | {failed:,} |" for fault, (count, failed) in sorted(rows.items())]
        terminalreporter.write_line("\n".join(lines))
