"""Dependence of translations on their batch: sentences translated alone, together, and in the opposite order.

    python -m benchmarks.batches RUN --lines FILE [--count N] [--precisions ...] [--backends native plain]

A line of the table is one precision and backend: the number of lines whose text differs from that of the sentence
alone, the number whose score differs, the largest difference of a score, and how much longer sentences take alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from jointnmt.ops import backend
from jointnmt.translator import Translation, TranslationOptions, Translator

ALONE = 1
"""Cells of a batch, fewer than any sentence has, so that it is alone."""


def measure(run: Path, lines: Sequence[str], precision: Any, name: Any) -> dict[str, Any]:
    """A row of the table."""
    with backend(name):
        alone, alone_seconds = _translations(Translator.load(run, "cpu", precision, ALONE), lines)
        translator = Translator.load(run, "cpu", precision)
        together, seconds = _translations(translator, lines)
        reverse, _ = _translations(translator, lines[::-1], TranslationOptions(window=50))
    pairs = [(alone, together), (alone, reverse[::-1])]
    each = [
        (one.candidates[0], other.candidates[0])
        for some, others in pairs
        for one, other in zip(some, others, strict=True)
    ]
    count = len(lines)
    texts = {number % count for number, (one, other) in enumerate(each) if one.text != other.text}
    scores = {number % count for number, (one, other) in enumerate(each) if one.score != other.score}
    return {
        "precision": precision,
        "backend": name,
        "texts": len(texts),
        "scores": len(scores),
        "largest": max(abs(one.score - other.score) for one, other in each),
        "times": alone_seconds / seconds,
    }


def _translations(
    translator: Translator, lines: Sequence[str], options: TranslationOptions | None = None
) -> tuple[list[Translation], float]:
    start = time.process_time()
    found = list(translator.translate_stream(lines, options or TranslationOptions()))
    return found, time.process_time() - start


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each requested precision and backend."""
    text = options.lines.read_text(encoding="utf-8").split("\n")
    lines = [line for line in text if line.strip()][: options.count]
    for precision in options.precisions:
        for name in options.backends:
            yield measure(options.run, lines, precision, name)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16", "int8", "float16"])
    parser.add_argument("--backends", nargs="+", default=["native", "plain"])
    torch.set_num_threads(1)
    print(f"{'precision':10}{'backend':9}{'texts':>6}{'scores':>8}{'largest':>10}{'alone takes':>13}")
    for row in rows(parser.parse_args()):
        print(
            f"{row['precision']:10}{row['backend']:9}{row['texts']:6}{row['scores']:8}{row['largest']:10.1e}"
            f"{row['times']:12.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
