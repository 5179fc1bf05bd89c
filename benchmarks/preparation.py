"""Cost of preparing a large corpus: learning pieces, segmenting pairs, removing duplicates, planning an epoch.

    python -m benchmarks.preparation --pairs 1000000 10000000

Pairs are synthetic: those of the bundled corpus, drawn at random, with words deleted, doubled and swapped on both
sides. Each part is measured in a process of its own; the last one is the first updates of a training. Processor seconds
count all processes, and are the cost that holds if other work shares the machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import description, peak_bytes
from jointnmt.data.batches import EpochPlan, load
from jointnmt.data.corpus import DataConfig
from jointnmt.data.filters import FilterReport
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.data.lines import text_lines
from jointnmt.data.pairs import read_pairs
from jointnmt.data.store import TokenStore, build_store
from jointnmt.experiment import Experiment
from jointnmt.runs.directory import RunDirectory
from jointnmt.shipped import locate_run
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train

BUNDLED = Path(__file__).parents[1] / "corpora" / "tatoeba-de-en" / "train.tsv.xz"
RUN = locate_run(Path("package:tatoeba-de-en-transformer"))
FILE_PAIRS = 1_000_000
SEED = 1
NOISE = 0.15
"""Fraction of the words of a side that are changed."""
UPDATES = 5
"""Updates of the training."""
LOADED = 100
"""Updates whose batches are loaded, at the beginning and at the end of an epoch."""


def write_corpus(folder: Path, pairs: int) -> None:
    """Write files with so many pairs in total; a larger corpus begins with the files of a smaller one."""
    counts = [min(FILE_PAIRS, pairs - begin) for begin in range(0, pairs, FILE_PAIRS)]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(partial(_write_file, folder), range(len(counts)), counts))


def _write_file(folder: Path, number: int, count: int) -> None:
    bundled = [line.split("\t")[:2] for line in text_lines(BUNDLED)]
    dice = np.random.default_rng([SEED, number])
    with (folder / f"{number:03d}.tsv").open("w", encoding="utf-8") as stream:
        for drawn in dice.integers(len(bundled), size=count).tolist():
            stream.write("\t".join(" ".join(_noisy(side.split(), dice)) for side in bundled[drawn]) + "\n")


def _noisy(words: list[str], dice: np.random.Generator) -> Iterator[str]:
    for word, chance, kind in zip(words, dice.random(len(words)), dice.random(len(words)), strict=True):
        if chance >= NOISE or len(words) < 3:
            yield word
        elif kind < 0.4:
            yield from (word, word)
        elif kind < 0.7:
            yield words[int(chance / NOISE * len(words))]


Part = Callable[[Path, int], dict[str, Any]]


def prepare(folder: Path, pairs: int, processes: int, parts: Sequence[str]) -> dict[str, Any]:
    """Time and memory of each part of the work before an epoch, each done by a process of its own.

    Args:
        folder: for the corpus, which is written unless it exists, and for what the parts make again.
        pairs: pairs of the corpus.
        processes: processes that segment.
        parts: the parts to do, of `PARTS`.
    """
    if not list(folder.glob("*.tsv")):
        write_corpus(folder, pairs)
    size = sum(path.stat().st_size for path in folder.glob("*.tsv"))
    found: dict[str, Any] = {"pairs": pairs, "processes": processes, "text_bytes": size}
    for name in parts:
        if name in MAKES:  # else an earlier measurement's files are reused at no cost
            shutil.rmtree(folder / MAKES[name], ignore_errors=True)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found[name] = pool.submit(_measured, PARTS[name], folder, processes).result()
    return found


def _measured(part: Part, folder: Path, processes: int) -> dict[str, Any]:
    began, spent = time.perf_counter(), _processor_seconds()
    values = part(folder, processes)
    return {
        **values,
        "seconds": time.perf_counter() - began,
        "processor_seconds": _processor_seconds() - spent,
        "peak_bytes": peak_bytes(),
        "peak_bytes_of_a_process": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def _config(folder: Path, processes: int) -> DataConfig:
    texts = [{"path": str(path)} for path in sorted(folder.glob("*.tsv"))]
    values = {"source_language": "de", "target_language": "en", "train": texts, "cache": str(folder / "cache")}
    filters = {"duplicates": "drop", "empty": "drop", "max_length": 128}
    return DataConfig.parse({**values, "filters": filters, "processes": processes}, "benchmark")


def _opened(folder: Path, processes: int) -> TokenStore:
    """The store, with the pieces of the bundled model."""
    return build_store(_config(folder, processes), Segmentation.load(RUN / "segmentation"))


def _learn(folder: Path, processes: int) -> dict[str, Any]:
    """Learn pieces from the whole text; the other parts use those of the bundled model."""
    data = _config(folder, processes)
    sources, targets = (read_pairs(data.train, data, FilterReport()) for _ in range(2))
    texts = (pair.source for pair in sources), (pair.target for pair in targets)
    learnt = Segmentation.train(SegmentationConfig(joint=True, vocabulary_size=8000), *texts, "de", "en")
    return {"vocabulary": learnt.source.vocabulary_size}


def _store(folder: Path, processes: int) -> dict[str, Any]:
    """Segment the text, remove duplicates, write the store."""
    store = _opened(folder, processes)
    return {"kept": len(store), "store_bytes": sum(path.stat().st_size for path in store.directory.iterdir())}


def _plan(folder: Path, processes: int) -> dict[str, Any]:
    """Open the store, plan an epoch, and load its first and last updates, as a resumed training does."""
    began = time.perf_counter()
    store = _opened(folder, processes)
    opened = time.perf_counter()
    plan = EpochPlan(store.lengths, BatchConfig(update_tokens=4096), SEED, 0, store.origin)
    updates = len(plan)
    planned = time.perf_counter()
    for update in [*islice(plan, LOADED), *plan.since(updates - LOADED)]:
        for batch in update:
            load(store, batch)
    return {"updates": updates, "open_seconds": opened - began, "plan_seconds": planned - opened}


def _train(folder: Path, processes: int) -> dict[str, Any]:
    """The first updates of a training, with its start."""
    trained = RunDirectory(RUN).read_experiment().plain()
    recipe = {
        "name": "benchmark",
        "seed": SEED,
        "model": trained["model"],
        "segmentation": trained["segmentation"],
        "data": _config(folder, processes).plain(),
        "batches": {"max_tokens": 4096, "update_tokens": 4096},
        "training": {"from": str(RUN), "max_updates": UPDATES, "accelerator": "cpu", "precision": "float32"},
    }
    train(Experiment.parse(recipe, "benchmark"), folder / "run", NoDisplay())
    return {"updates": UPDATES}


PARTS: dict[str, Part] = {"pieces": _learn, "store": _store, "plan": _plan, "training": _train}
MAKES = {"store": "cache", "training": "run"}
"""Folder that a part writes."""


def _processor_seconds() -> float:
    """Processor seconds of this process and those that it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def main() -> None:
    """Measure, and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, help="folder of the corpora, which are kept; default: a temporary one")
    given = parser.parse_args()
    print(json.dumps(description()))
    for pairs in given.pairs:
        with tempfile.TemporaryDirectory() as name:
            folder = (given.folder or Path(name)) / str(pairs)
            folder.mkdir(parents=True, exist_ok=True)
            print(json.dumps(prepare(folder, pairs, given.processes, given.parts)), flush=True)


if __name__ == "__main__":
    main()
