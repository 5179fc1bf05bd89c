"""Table of the faults that were tried, and of failures."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

SCALE = int(os.environ.get("JOINTNMT_FAULTS", "1"))
"""Factor of the number of seeded faults of each kind, relative to the short tier."""

long_tier = pytest.mark.skipif(SCALE == 1, reason="takes a minute: make faults")
"""Mark of tests that the short tier leaves out."""

Tried = Callable[[str, int, int], None]
"""Function of a fault, the number of tries, and the number of failures."""


@pytest.fixture
def tried(record_property: Callable[[str, Any], None]) -> Tried:
    """Record tries and failures of a fault for the table."""
    return lambda fault, count, failed: record_property("tried", [fault, count, failed])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table in the form that docs/reliability.md has."""
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
