"""Cost of Ray: two workers of `translate-corpus` against two plain processes of `translate`, on two cores.

    python -m benchmarks.cluster --lines 12000 [--rounds N]

Both translate the same lines with the same model, one thread each; more lines than the corpus has repeat it. Seconds
are those of whole commands, medians over rounds, in which both take turns to be first, after a warm-up call for two
lines. For figures without the start, the seconds of the same commands for two lines are subtracted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import description
from jointnmt.data.lines import text_lines

BUNDLED = Path(__file__).parents[1] / "corpora" / "tatoeba-de-en" / "train.tsv.xz"
WORKERS = 2
PRECISION = ["--precision", "float32"]


def measure(run: str, count: int, shard_rows: int, rounds: int) -> dict[str, Any]:
    """Seconds of both ways, and the efficiency of the workers."""
    every = [line.split("\t")[0] for line in text_lines(BUNDLED)]
    lines = list(islice(cycle(every[:: max(1, len(every) // count)]), count))
    with tempfile.TemporaryDirectory() as name:
        few = lines[:WORKERS]
        _both(run, few, Path(name, "warm-up"), shard_rows)
        found = {
            what: [
                _both(run, texts, Path(name, f"{what}-{number}"), shard_rows, number % 2 == 1)
                for number in range(rounds)
            ]
            for what, texts in (("start", few), ("whole", lines))
        }
    (plain, cluster), (plain_start, cluster_start) = (
        map(median, zip(*found[what], strict=True)) for what in ("whole", "start")
    )
    return {
        "lines": len(lines),
        "rounds": rounds,
        "plain_seconds": plain,
        "cluster_seconds": cluster,
        "plain_start_seconds": plain_start,
        "cluster_start_seconds": cluster_start,
        "efficiency": plain / cluster,
        "efficiency_without_start": (plain - plain_start) / (cluster - cluster_start),
    }


def _both(
    run: str, lines: Sequence[str], folder: Path, shard_rows: int, cluster_first: bool = False
) -> tuple[float, float]:
    """Seconds of plain processes and of the cluster's workers; their translations must be equal."""
    folder.mkdir()
    cluster = _cluster(run, lines, folder, shard_rows) if cluster_first else 0.0
    plain = _plain(run, lines, folder)
    cluster = cluster or _cluster(run, lines, folder, shard_rows)
    _check(folder)
    return plain, cluster


def _check(folder: Path) -> None:
    """Check that both have written the same translations."""
    found = [line for path in sorted((folder / "out").glob("part-*")) for line in text_lines(path)]
    for number in range(WORKERS):
        assert found[number::WORKERS] == list(text_lines(folder / f"{number}.en")), "other translations"


def _plain(run: str, lines: Sequence[str], folder: Path) -> float:
    """Seconds of `translate` in as many processes, each with every second line."""
    commands = []
    for number in range(WORKERS):
        path = folder / f"{number}.txt"
        path.write_text("".join(f"{line}\n" for line in lines[number::WORKERS]), encoding="utf-8")
        commands.append(["translate", run, *PRECISION, "--input", str(path), "--out", str(folder / f"{number}.en")])
    return _seconds(*commands)


def _cluster(run: str, lines: Sequence[str], folder: Path, shard_rows: int) -> float:
    """Seconds of `translate-corpus` with as many workers."""
    (folder / "all.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    rows = str(min(shard_rows, max(1, len(lines) // WORKERS)))
    where = [str(folder / "all.txt"), "--out", str(folder / "out")]
    return _seconds(["translate-corpus", run, *PRECISION, *where, "--shard-rows", rows, "--workers", str(WORKERS)])


def _seconds(*commands: Sequence[str]) -> float:
    """Seconds of commands that run at the same time, until the last has ended."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    began = time.perf_counter()
    started = [subprocess.Popen([sys.executable, "-m", "jointnmt", "-q", *each], env=environment) for each in commands]
    codes = [each.wait() for each in started]
    assert not any(codes), codes
    return time.perf_counter() - began


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="package:tatoeba-de-en-transformer")
    parser.add_argument("--lines", type=int, default=12_000)
    parser.add_argument("--shard-rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = measure(given.run, given.lines, given.shard_rows, given.rounds)
    print(json.dumps({**description(), **found}, indent=1))


if __name__ == "__main__":
    main()
