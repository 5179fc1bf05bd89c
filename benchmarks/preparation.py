"""What it costs to prepare a large corpus: made-up pairs are read, segmented, rid of duplicates, stored, and dealt.

    python -m benchmarks.preparation --pairs 1000000 10000000

Pairs are those of the bundled corpus, drawn at random, with words left out, doubled and exchanged on both sides. Each
number of pairs is prepared in a process of its own. Seconds of the processors count all processes, and say what the
cost is where other work shares the machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import description, peak_bytes, resident_bytes
from jointnmt.data.batches import load, plan_epoch
from jointnmt.data.corpus import DataConfig
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.data.lines import text_lines
from jointnmt.data.store import build_store
from jointnmt.shipped import locate_run
from jointnmt.text.segmentation import Segmentation

BUNDLED = Path(__file__).parents[1] / "corpora" / "tatoeba-de-en" / "train.tsv.xz"
FILE_PAIRS = 1_000_000
NOISE = 0.15
"""Of the words of a side, how many are changed."""
SEED = 1


def write_corpus(folder: Path, pairs: int) -> list[Path]:
    """Files of so many pairs together; the first files of a larger corpus are those of a smaller one."""
    bundled = [line.split("\t")[:2] for line in text_lines(BUNDLED)]
    paths = []
    for number, begin in enumerate(range(0, pairs, FILE_PAIRS)):
        paths.append(folder / f"{number:03d}.tsv")
        dice = np.random.default_rng([SEED, number])
        count = min(FILE_PAIRS, pairs - begin)
        with paths[-1].open("w", encoding="utf-8") as stream:
            for drawn in dice.integers(len(bundled), size=count).tolist():
                stream.write("\t".join(" ".join(_noisy(side.split(), dice)) for side in bundled[drawn]) + "\n")
    return paths


def _noisy(words: list[str], dice: np.random.Generator) -> Iterator[str]:
    for word, chance, kind in zip(words, dice.random(len(words)), dice.random(len(words)), strict=True):
        if chance >= NOISE or len(words) < 3:
            yield word
        elif kind < 0.4:
            yield from (word, word)
        elif kind < 0.7:
            yield words[int(chance / NOISE * len(words))]


def prepare(pairs: int, processes: int) -> dict[str, Any]:
    """Time and memory of a store of so many pairs, and of the plan of an epoch."""
    run = locate_run(Path("package:tatoeba-de-en-transformer"))
    segmentation = Segmentation.load(run / "segmentation")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [{"path": str(path)} for path in write_corpus(folder, pairs)]
        values = {"source_language": "de", "target_language": "en", "train": texts, "cache": str(folder / "cache")}
        filters = {"duplicates": "drop", "empty": "drop", "max_length": 128}
        config = DataConfig.parse({**values, "filters": filters, "processes": processes}, "benchmark")
        before, began, spent = resident_bytes(), time.perf_counter(), _processor_seconds()
        store = build_store(config, segmentation)
        found = {
            "pairs": pairs,
            "kept": len(store),
            "processes": processes,
            "seconds": time.perf_counter() - began,
            "processor_seconds": _processor_seconds() - spent,
            "memory_before": before,
            "peak_bytes": peak_bytes(),
            "peak_bytes_of_a_process": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
            "text_bytes": sum(path.stat().st_size for path in folder.glob("*.tsv")),
            "store_bytes": sum(path.stat().st_size for path in store.directory.iterdir()),
        }
        began = time.process_time()
        updates = plan_epoch(*store.lengths, BatchConfig(update_tokens=4096), SEED, 0, store.origin)
        found |= {"updates": len(updates), "plan_seconds": time.process_time() - began}
        began = time.process_time()
        for update in updates[:200]:
            for batch in update:
                load(store, batch)
        return {**found, "seconds_of_200_updates": time.process_time() - began, "peak_bytes_with_plan": peak_bytes()}


def _processor_seconds() -> float:
    """Of this process and those that it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def main() -> None:
    """Measure, and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    print(json.dumps(description()))
    for pairs in given.pairs:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            print(json.dumps(pool.submit(prepare, pairs, given.processes).result()), flush=True)


if __name__ == "__main__":
    main()
