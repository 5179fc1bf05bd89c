"""The server's benchmark runs, with the same translations by all ways."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.serving import compare

from support.serving import write_model
from support.tiny_run import SOURCE_WORDS


def test_the_benchmark_of_the_server_runs(tmp_path: Path) -> None:
    sentences = [" ".join(SOURCE_WORDS[: 1 + number % 8]) for number in range(40)]
    cores = os.sched_getaffinity(0)
    found = compare(write_model(tmp_path / "main"), sentences, clients=4, client_core=min(cores))
    assert os.sched_getaffinity(0) == cores
    assert (found["sentences"], found["clients"]) == (40, 4)
    assert all(value >= 0 for name, value in found.items() if name != "added_ms")
