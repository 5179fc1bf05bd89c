"""The package of `examples/own_family`, as if installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "examples/own_family"


def install(site: Path, entry: str | None = None) -> None:
    """Write the files that pip would write to `site`: the module, and the entry points of its pyproject."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [(name, value)] = project["entry-points"]["jointnmt.families"].items()
    about = site / "jointnmt_rnn-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[jointnmt.families]\n{name} = {entry or value}\n", encoding="utf-8")
    (site / "jointnmt_rnn.py").write_text((PACKAGE / "jointnmt_rnn.py").read_text(encoding="utf-8"), encoding="utf-8")
