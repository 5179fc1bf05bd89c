"""What lexical shortcuts cost in training: models with and without them, side by side in one run.

    python -m benchmarks.shortcuts [--repeats N] [--out FILE.json]

Prints, for each model, seconds an update (forward, backward, Adam) of batches of equal sentence lengths, and the ratio
to the same model without shortcuts: the median over rounds, in each of which all models take their turn. Seconds are
those of this process on the CPU, with one thread, so that other processes on the machine disturb little.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.machine import write_figures
from benchmarks.sizes import SIZES, model_config
from jointnmt.models import FAMILIES, TranslationModel, build_model
from jointnmt.training.loss import cross_entropy_sums
from jointnmt.training.memory import bound_kernel_cache, keep_freed_memory

LENGTHS = {"IWSLT": 23, "Multi30k": 14}
"""Mean tokens of a sentence on either side."""
TOKENS = 1024
MODELS = [f"{family}/{size}" for size in LENGTHS for family in FAMILIES]
VARIANTS = {"none": None, "plain": {"kind": "plain"}, "fusion": {"kind": "fusion"}}


class Subject:
    """One model in training."""

    def __init__(self, family: str, size: str, variant: str) -> None:
        config = model_config(family, size, embeddings="all", shortcuts=VARIANTS[variant])
        vocabulary = SIZES[size].vocabulary
        torch.manual_seed(0)
        self.model: TranslationModel = build_model(config, vocabulary, vocabulary)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        length = LENGTHS[size]
        self.batch = torch.randint(4, vocabulary, (2, TOKENS // length, length))

    def update(self) -> float:
        """Seconds of one update."""
        began = time.process_time()
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(*self.batch)
        loss, _ = cross_entropy_sums(logits, self.batch[1], 0.1)
        (loss / self.batch[1].numel()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return time.process_time() - began


def compare(family: str, size: str, repeats: int) -> list[dict[str, Any]]:
    """A row for each variant of one model."""
    subjects = {variant: Subject(family, size, variant) for variant in VARIANTS}
    for subject in subjects.values():
        subject.update()
    rounds = [{variant: subject.update() for variant, subject in subjects.items()} for _ in range(repeats)]
    return [
        {
            "model": f"{family}, {size} size",
            "shortcuts": variant,
            "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
            "seconds": median(each[variant] for each in rounds),
            "ratio": median(each[variant] / each["none"] for each in rounds),
        }
        for variant, subject in subjects.items()
    ]


def main() -> None:
    """Measure, print a table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="rounds of each comparison")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    bound_kernel_cache()
    rows = []
    for model in options.models:
        family, size = model.split("/")
        for row in compare(family, size, options.repeats):
            rows.append(row)
            print(
                "{model:30} {shortcuts:7} {parameters:>11,} {seconds:8.3f} s  x {ratio:.3f}".format(**row), flush=True
            )
    if options.out:
        write_figures(options.out, rows=rows)


if __name__ == "__main__":
    main()
