"""Executes the notebooks of `examples`, and keeps the output of their cells.

    python -m docs.notebooks

Run it after a change of the models in `pretrained` or of the output of the Python interface.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy of the notebook with the current output of its cells, without times of execution."""
    again = copy.deepcopy(notebook)
    NotebookClient(again, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}, record_timing=False).execute()
    return again


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for path in NOTEBOOKS:
        nbformat.write(executed(nbformat.read(path, nbformat.NO_CONVERT)), path)
