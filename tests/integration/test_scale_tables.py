"""docs/scale.md has the tables that `benchmarks.scale_tables` makes, and the simulation runs beside real trainings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import scale_tables

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_tables_as_they_are_made() -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    for rows in scale_tables.TABLES.values():
        assert "\n".join(rows()) in page


def test_simulated_and_measured_updates_are_compared(tmp_path: Path) -> None:
    out = tmp_path / "scale.json"
    command = [sys.executable, "-m", "benchmarks.scale_measured", "--size", "tiny", "--families", "transformer"]
    subprocess.run([*command, "--processes", "1", "2", "--updates", "3", "--out", out], check=True, cwd=ROOT)
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [row["processes"] for row in rows] == [1, 2]
    for row in rows:
        assert row["off"] == row["simulated"] / row["measured"] - 1
        assert row["parts"]["summing"] > 0 or row["processes"] == 1
