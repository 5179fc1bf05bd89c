"""Measure training, decoding, latency and growth of every family, side by side in one run.

    python -m benchmarks [BENCHMARK ...] [--device cuda] [--quick] [--out FOLDER]

`training` is forward, backward and update on batches of real sentence lengths; `decoding` is beam search of 16
sentences at once, `latency` of one sentence of 20 words, repeatedly; `engines` is both for the Transformer, beside
CTranslate2; `growth` is training and decoding against length and number of sentences.
docs/performance.md says what is counted. Each subject runs in a process of its own, and subjects take turns.
A GPU (`--device cuda`) has other defaults: large batches, bfloat16, the IWSLT size; no growth.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from benchmarks import growth as growing
from benchmarks.comparing import Case, compare
from benchmarks.decoding import DecodingCase
from benchmarks.engines import of_one_length
from benchmarks.lengths import SentenceLengths, sentence_lengths
from benchmarks.report import Report
from benchmarks.sizes import SIZES
from benchmarks.training import Implementation, TrainingCase
from jointnmt.models import FAMILIES

BENCHMARKS = ("training", "decoding", "latency", "engines", "growth")
PRECISIONS = {
    "training": ("float32", "bfloat16"),
    "decoding": ("float32", "bfloat16", "int8"),
    "latency": ("float32", "bfloat16", "int8"),
    "engines": ("float32", "int8"),
    "growth": ("bfloat16",),
}
IMPLEMENTATIONS: dict[str, Sequence[Implementation]] = {
    "training": ("product", "checkpointed", "reference"),
    "decoding": ("product",),
    "latency": ("product",),
    "engines": ("product", "ctranslate2"),
    "growth": ("product", "reference"),
}
ON_GPU = {
    "benchmarks": ["training", "decoding", "latency"],
    "sizes": ["IWSLT"],
    "precisions": ["bfloat16"],
    "rounds": 3,
    "max_tokens": 4096,
    "max_cells": None,
    "batch_size": 128,
}
"""Defaults of `--device cuda`: meant to fill a large GPU, and to end within ten minutes."""
LATENCY_TOKENS = 21
"""20 words and the end mark."""
QUICK = {
    "rounds": 1,
    "max_tokens": 128,
    "batch_size": 4,
    "batches": 1,
    "points": [[8, 16], [1, 2]],
}
"""Settings of `--quick`, which checks that everything runs; its figures mean nothing."""


def options() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser("benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("benchmarks", nargs="*", metavar="BENCHMARK", help=f"default: {' '.join(BENCHMARKS)}")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--out", type=Path, metavar="FOLDER", help="write JSON and figures there")
    add("--quick", action="store_true", help="small batches, one round: checks that everything runs")
    add("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="FAMILY")
    add("--sizes", nargs="+", choices=SIZES, metavar="SIZE", help="default: IWSLT Multi30k; for growth, IWSLT")
    add("--precisions", nargs="+", metavar="PRECISION", help="default: all; for growth, bfloat16")
    add("--implementations", nargs="+", choices=get_args(Implementation), metavar="IMPLEMENTATION")
    add("--rounds", type=int, default=5, help="rounds, in each of which every subject takes its turn")
    add("--max-tokens", type=int, default=1024, help="tokens of a training batch, which is an update")
    add("--max-cells", type=int, default=24_576, help="cells of a training batch, within the reference's memory")
    add("--batch-size", type=int, default=16, help="sentences decoded at once")
    add("--batches", type=int, default=4, help="batches decoded in a round, spread evenly over the sorted corpus")
    add("--threads", type=int, default=1, help="with more, time on the CPU depends on the machine's other work")
    parser.set_defaults(points=[list(growing.LENGTHS), list(growing.SENTENCES)])
    on_gpu = parser.parse_known_args()[0].device == "cuda"
    if on_gpu:
        parser.set_defaults(**ON_GPU)
    asked = parser.parse_args()
    if on_gpu and not torch.cuda.is_available():
        parser.error("there is no GPU here that torch can use")
    if on_gpu and {"growth", "engines"} & set(asked.benchmarks):
        parser.error("growth and engines are measured on the CPU only")
    if unknown := set(asked.benchmarks) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    of_training = {"checkpointed", "compiled"} & set(asked.implementations or [])
    if of_training and not set(asked.benchmarks or BENCHMARKS) <= {"training", "growth"}:
        parser.error(f"{', '.join(sorted(of_training))}: of training only. Name the benchmark: training, or growth")
    if asked.threads < 1:
        parser.error(f"--threads is at least 1 (given: {asked.threads})")
    if asked.quick:
        vars(asked).update(QUICK)
    return asked


def main() -> None:
    """Run the benchmarks that the command line names."""
    asked = options()
    torch.set_num_threads(asked.threads)
    for name in asked.benchmarks or BENCHMARKS:
        settings = {key: str(value) if key == "out" else value for key, value in vars(asked).items()}
        measure(name, asked, Report(name, asked.out, settings, asked.device))


def measure(name: str, asked: argparse.Namespace, report: Report) -> None:
    """One benchmark of all subjects."""
    implementations = asked.implementations or IMPLEMENTATIONS[name]
    sizes = asked.sizes or (["IWSLT"] if name == "growth" else ["IWSLT", "Multi30k"])
    families = [each for each in asked.families if name != "engines" or each == "transformer"]
    for family, size, precision in product(families, sizes, asked.precisions or PRECISIONS[name]):
        names = family, size, precision
        if name == "growth":
            for task in ("training", "decoding"):
                kinds = implementations if task == "training" else IMPLEMENTATIONS["decoding"]
                report.add(list(growing.growth(task, names, kinds, asked.points, asked.rounds, asked.threads)))
        elif name == "engines":
            for sentences in (asked.batch_size, 1):
                engines = [engine_case(sentences, names, implementation, asked) for implementation in implementations]
                rows = compare(engines, asked.rounds, asked.threads, profiled=False)
                report.add([{**row, "sentences": sentences} for row in rows])
        else:
            cases = [case(name, names, implementation, asked) for implementation in implementations]
            # On a GPU `benchmarks.hotspots` profiles: the thousands of launches of decoding take minutes to add up.
            report.add(compare(cases, asked.rounds, asked.threads, profiled=asked.device == "cpu"))
    if name == "growth" and asked.out is not None:
        draw(report, asked.out)


def case(name: str, names: tuple[str, str, str], implementation: Implementation, asked: argparse.Namespace) -> Case:
    """A subject of training, decoding or latency."""
    if name == "latency":
        one = (np.array([LATENCY_TOKENS]),)
        return DecodingCase(*names, implementation, one, one, device=asked.device)
    lengths = sentence_lengths(names[1])
    if name == "decoding":
        batches = list(evenly_spread(lengths, asked.batches, asked.batch_size))
        source, target = zip(*batches, strict=True)
        return DecodingCase(*names, implementation, source, target, device=asked.device)
    limits = asked.max_tokens, asked.max_cells
    return TrainingCase(*names, implementation, lengths.source, lengths.target, *limits, updates=1, device=asked.device)


def engine_case(
    sentences: int, names: tuple[str, str, str], implementation: Implementation, asked: argparse.Namespace
) -> DecodingCase:
    """A subject beside CTranslate2: batches as in `decoding`, or one sentence as in `latency`."""
    found = case("latency" if sentences == 1 else "decoding", names, implementation, asked)
    assert isinstance(found, DecodingCase)
    return replace(found, target=of_one_length(found.target))


def evenly_spread(lengths: SentenceLengths, batches: int, size: int) -> Iterator[tuple[Any, Any]]:
    """Source and target lengths of batches of sentences of similar source length, as a translator makes them: from
    the middle of each of `batches` equal parts of the sorted corpus."""
    order = np.lexsort((lengths.target, lengths.source))
    for part in np.array_split(order, batches):
        first = max((len(part) - size) // 2, 0)
        chosen = part[first : first + size]
        yield lengths.source[chosen], lengths.target[chosen]


def draw(report: Report, folder: Path) -> None:
    """The figures of growth: one for training and one for decoding, at each size and precision."""
    for task, size, precision in sorted({(row["task"], row["size"], row["precision"]) for row in report.rows}):
        rows = [row for row in report.rows if (row["task"], row["size"], row["precision"]) == (task, size, precision)]
        figure = growing.growth_figure(rows, f"{task} at the {size} size, {precision}")
        figure.savefig(folder / f"growth-{task}-{size}-{precision}.png", dpi=150)


if __name__ == "__main__":
    main()
