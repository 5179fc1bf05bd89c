"""What it would save to sum gradients while the backward pass runs, or in bfloat16: two processes, a slow network.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python -m benchmarks.overlap [--family FAMILY] [--size SIZE]

and the same with RANK=1, each in a network namespace of its own whose interface `tc` limits. Updates are made by turns:
as training makes them, with sums of parts of the gradients that begin in the backward pass of an update's last batch,
and with gradients that are summed in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable
from statistics import mean
from typing import Any

import torch
from torch import Tensor, distributed, nn

from benchmarks.lengths import sentence_lengths
from benchmarks.machine import description
from benchmarks.scale_measured import BATCH_TOKENS, MAX_CELLS, UPDATE_TOKENS, WARM_UP
from benchmarks.sizes import SIZES
from benchmarks.training import Training, TrainingCase
from jointnmt.data.batch import Batch
from jointnmt.models import FAMILIES
from jointnmt.training.gradients import FlatGradients

PART_BYTES = 2**21
"""Of the gradients that are summed together, at least."""


class OverlappedGradients(FlatGradients):
    """Gradients whose parts are summed as soon as the last batch of the update has added to them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self._parts: list[tuple[Tensor, set[int]]] = []
        end = begin = len(self._buffer)
        numbers = set[int]()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for number, parameter in reversed([*enumerate(parameters)]):  # as the backward pass comes to them, by and large
            parameter.register_post_accumulate_grad_hook(lambda _, number=number: self._added(number))
            begin -= parameter.numel()
            numbers.add(number)
            if 4 * (end - begin) >= PART_BYTES or begin == 0:
                self._parts.append((self._buffer[begin:end], numbers))
                end, numbers = begin, set()
        self._count = len(parameters)

    def expect(self, batches: int) -> None:
        """So many backward passes are to follow `zero`."""
        self._batches = batches

    def zero(self) -> None:
        """Begin an update."""
        super().zero()
        self._works: list[Any] = []
        self._left = Counter(dict.fromkeys(range(self._count), self._batches))
        self._begin_sums()

    def _added(self, number: int) -> None:
        self._left[number] -= 1
        if self._left[number] == 0:
            self._begin_sums()

    def _begin_sums(self) -> None:
        """In the same order in all processes."""
        for part, numbers in self._parts[len(self._works) :]:
            if any(self._left[number] for number in numbers):
                return
            self._works.append(distributed.all_reduce(part, async_op=True))

    def sum(self) -> None:
        """Wait for all sums."""
        for work in self._works:
            work.wait()


class HalvedGradients(FlatGradients):
    """Gradients that are summed in bfloat16."""

    def sum(self) -> None:
        """Sum them."""
        rounded = self._buffer.bfloat16()
        distributed.all_reduce(rounded)
        self._buffer.copy_(rounded)


def _as_it_is(training: Training) -> None:
    pass


def _overlapped(training: Training) -> None:
    trainer = training.trainer
    gradients, accumulate = OverlappedGradients(trainer.model), trainer._accumulate

    def expecting(batches: list[Batch], step: int, divisor: int) -> Any:
        gradients.expect(len(batches))
        return accumulate(batches, step, divisor)

    trainer._gradients, trainer._accumulate = gradients, expecting  # type: ignore[method-assign]


def _halved(training: Training) -> None:
    training.trainer._gradients = HalvedGradients(training.trainer.model)


KINDS: dict[str, Callable[[Training], None]] = {
    "as it is": _as_it_is, "overlapped": _overlapped, "bfloat16": _halved,
}  # fmt: skip


def measure(family: str, size: str, precision: str, updates: int) -> dict[str, float]:
    """Mean seconds of an update, for each kind of sum."""
    lengths = sentence_lengths(size)
    case = TrainingCase(
        family, size, precision, "product", lengths.source, lengths.target, BATCH_TOKENS, MAX_CELLS,
        updates=WARM_UP + updates, update_tokens=UPDATE_TOKENS,
    )  # fmt: skip
    subjects = {kind: Training(case) for kind in KINDS}
    for kind, change in KINDS.items():
        change(subjects[kind])
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(WARM_UP + updates):
        for kind, subject in subjects.items():
            distributed.barrier()
            seconds[kind].append(next(subject.steps).seconds)
    numbers = sum(weight.numel() for weight in subjects["as it is"].trainer.model.parameters())
    return {"gradient_bytes": 4.0 * numbers, **{kind: mean(took[WARM_UP:]) for kind, took in seconds.items()}}


def main() -> None:
    """Measure, and print one JSON object in the first process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=FAMILIES, default="transformer")
    parser.add_argument("--size", choices=SIZES, default="Multi30k")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--updates", type=int, default=20)
    asked = parser.parse_args()
    os.environ |= {"TORCHELASTIC_RUN_ID": "benchmark", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # as torchrun does
    torch.set_num_threads(1)
    measured = measure(asked.family, asked.size, asked.precision, asked.updates)
    if distributed.get_rank() == 0:
        print(json.dumps({**description(), "family": asked.family, **measured}))


if __name__ == "__main__":
    main()
