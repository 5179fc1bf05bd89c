"""docs/scale.md has the tables of `benchmarks.scale_tables`, and the simulation runs beside real trainings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import scale_tables

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_tables_as_they_are_made() -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert "\n".join(scale_tables.update_table()) in page
    for row in scale_tables.cluster_table(["nist12/zh-en-reformer-fast"]):  # the others take equally long
        assert f"{row}\n" in page


def test_simulated_and_measured_updates_are_compared(tmp_path: Path) -> None:
    out = tmp_path / "scale.json"
    command = [sys.executable, "-m", "benchmarks.scale_measured", "--size", "tiny", "--families", "transformer"]
    subprocess.run([*command, "--processes", "2", "--updates", "2", "--out", out], check=True, cwd=ROOT)
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [row["processes"] for row in rows] == [2]
    assert rows[0]["off"] == rows[0]["simulated"] / rows[0]["measured"] - 1
    assert rows[0]["parts"]["summing"] > 0
