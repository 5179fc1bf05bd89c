"""The tables of docs/scale.md, from measured rates and, for GPUs, from the traffic and products of operations.

    python -m benchmarks.scale_tables

Nothing is timed: the numbers are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.lengths import SentenceLengths, recorded
from benchmarks.machines import FOLDER
from benchmarks.scale import Network, Processor, SimulatedTraining, UpdateTime, mean_time
from benchmarks.traffic import Counting, count_update
from jointnmt.data.batches import UpdateBatches, plan_epoch
from jointnmt.experiment import Experiment
from jointnmt.models import build_model

ROOT = Path(__file__).resolve().parents[1]
RECIPES = {
    "iwslt14/de-en-transformer": (8_848, 6_632),
    "iwslt14/de-en-reformer-fast": (8_848, 6_632),
    "nist12/zh-en-transformer": (37_300, 37_300),
    "nist12/zh-en-reformer-fast": (37_300, 37_300),
    "wmt14/en-de-base-fusion": (32_000, 32_000),
    "wmt14/en-de-big-fusion": (32_000, 32_000),
}
"""Recipes, with the numbers of pieces of source and target."""
SEED = 1
SAMPLE = 2**18
"""Least target tokens of the simulated updates, of which there are at least two."""
CARD_TOKENS = 16_384
"""Target tokens per card of an update that grows with the number of cards."""
LOAD = 1.2e-6
"""Core seconds of preparing a target token of a batch: for the bundled corpus, on the machine of docs/scale.md."""


@dataclass(frozen=True)
class Card:
    """A GPU: its attained rates, and the host's time for an operation."""

    name: str
    product_rate: float
    """Operations a second in large bfloat16 products."""
    memory: float
    """Bytes a second of memory."""
    launch: float = 6e-6
    """Seconds of eager PyTorch on the host for an operation."""


@dataclass(frozen=True)
class Machines:
    """Machines with so many cards each, and the links of cards and machines."""

    name: str
    cards: int
    inside: Network
    between: Network
    """Link of a machine, which its cards share."""

    def network(self, processes: int) -> Network:
        """The slowest link of a ring of all cards."""
        return self.inside if processes <= self.cards else self.between


H100 = Card("H100", 650e12, 3.35e12)
NVLINK = Network(8e-6, 450e9)
FAST = Machines("8 x 400 Gbit/s", 8, NVLINK, Network(20e-6, 400e9))
SLOW = Machines("10 Gbit/s", 8, NVLINK, Network(50e-6, 1.25e9))


@dataclass(frozen=True)
class Planned:
    """A recipe's training and some of its updates."""

    name: str
    training: SimulatedTraining
    parameters: int
    updates: list[UpdateBatches] = field(repr=False)
    tokens: float
    """Mean target tokens of an update."""

    @property
    def operations(self) -> float:
        """Mean operations of an update."""
        return float(np.mean([sum(map(self.training.operations, update)) for update in self.updates]))


@dataclass(frozen=True)
class Simulated:
    """Mean update on a cluster."""

    time: UpdateTime
    tokens: float
    """Mean target tokens."""

    @property
    def tokens_per_second(self) -> float:
        """Target tokens a second of training."""
        return self.tokens / self.time.total


@cache
def planned(name: str, update_tokens: int | None = None) -> Planned:
    """A recipe's updates, or larger ones, from as many pairs as a large corpus has, with the lengths of IWSLT14's."""
    experiment = Experiment.load(ROOT / "recipes" / f"{name}.yaml")
    batches = experiment.batches
    if update_tokens:
        batches = batches.model_copy(update={"update_tokens": update_tokens})
    lengths = recorded("IWSLT")
    updates = max(2, SAMPLE // batches.update_tokens)
    pairs = 2**16 + updates * batches.update_tokens // 10
    rows = np.random.default_rng(SEED).integers(0, len(lengths.source), pairs)
    drawn = SentenceLengths(lengths.source[rows], lengths.target[rows], lengths.origin, lengths.left_out)
    with FakeTensorMode():
        model = build_model(experiment.model, *RECIPES[name])
    training = SimulatedTraining.of(model, RECIPES[name][1], drawn)
    plan = plan_epoch(drawn.source, drawn.target, batches, SEED, 0)[:updates]
    tokens = float(np.mean([sum(int(drawn.target[batch].sum()) for batch in update) for update in plan]))
    return Planned(name, training, training.gradient_bytes // 4, plan, tokens)


@cache
def on_card(name: str) -> Processor:
    """Costs of a recipe's batches on an H100, by `benchmarks.traffic`; Adam reads and writes 40 bytes a parameter."""
    recipe = planned(name)
    sentences, length = 4096 // 23, 23
    counting = Counting(H100.product_rate, H100.memory)
    count_update(recipe.training.config, recipe.training.vocabulary, sentences, length, counting)
    batch = np.arange(sentences)
    same = SimulatedTraining(
        recipe.training.config, recipe.training.vocabulary, 0, np.full(sentences, length), np.full(sentences, length)
    )
    return Processor(
        operation=sum(counting.seconds.values()) / same.operations(batch),
        shortest_batch=counting.launches * H100.launch,
        step=40 * recipe.parameters / H100.memory,
        load=LOAD,
    )


def simulated(name: str, processes: int, machines: Machines, update_tokens: int | None = None) -> Simulated:
    """Mean update of a recipe on so many cards."""
    recipe, processor = planned(name, update_tokens), on_card(name)
    network = machines.network(processes)
    times = [recipe.training.update_time(each, processes, processor, network) for each in recipe.updates]
    return Simulated(mean_time(times), recipe.tokens)


def update_table() -> Iterator[str]:
    """Size of an update of each recipe, and its cost on one card."""
    yield "| recipe | parameters | target tokens | TFLOP | gradients | one card | of its rate | shortest batch | data |"
    yield "|---" * 9 + "|"
    for name in RECIPES:
        recipe, card = planned(name), on_card(name)
        time = simulated(name, 1, FAST).time
        yield (
            f"| {name} | {recipe.parameters / 1e6:.0f} million | {recipe.tokens:,.0f} | {recipe.operations / 1e12:.1f} "
            f"| {recipe.training.gradient_bytes / 1e6:,.0f} MB | {1e3 * time.total:,.0f} ms "
            f"| {recipe.operations / time.total / H100.product_rate:.0%} | {1e3 * card.shortest_batch:.0f} ms "
            f"| {recipe.tokens * card.load * 1e3:.0f} ms |"
        )


def cluster_table(names: Iterable[str] = RECIPES, counts: Sequence[int] = (8, 16, 64)) -> Iterator[str]:
    """Speed of training on so many cards relative to one, and what limits it."""
    yield "| recipe | update | machines joined by | " + " | ".join(f"{count} cards" for count in counts) + " |"
    yield "|---" * (3 + len(counts)) + "|"
    for name in names:
        for grown, machines in ((False, FAST), (True, FAST), (True, SLOW)):
            one = simulated(name, 1, machines, CARD_TOKENS if grown else None)
            cells = [
                _cell(simulated(name, count, machines, CARD_TOKENS * count if grown else None), one, count)
                for count in counts
            ]
            update = f"{CARD_TOKENS:,} tokens a card" if grown else "the recipe's"
            yield f"| {name} | {update} | {machines.name} | {' | '.join(cells)} |"


def _cell(update: Simulated, one: Simulated, count: int) -> str:
    faster, time = update.tokens_per_second / one.tokens_per_second, update.time
    name, most = max((("waiting", time.waiting), ("sum", time.summing)), key=lambda part: part[1])
    return f"{faster:.1f} ({faster / count:.0%}, {name} {most / time.total:.0%})"


def translation_table() -> Iterator[str]:
    """Time for a billion sentences of 23 tokens on cores like the measured ones."""
    yield "| processor | family | precision | sentences/s of a core | core-hours for 10^9 sentences |"
    yield "|---" * 5 + "|"
    for file in sorted(FOLDER.glob("*.json")):
        machine = json.loads(file.read_text(encoding="utf-8"))
        for row in machine["rows"]:
            if row["task"] == "decoding" and row["implementation"] == "product" and row["shortcuts"] is None:
                rate = row["sentences"] / row["seconds"]  # processor time of all threads
                hours = 1e9 / rate / 3600
                yield f"| {machine['kind']} | {row['family']} | {row['precision']} | {rate:.1f} | {hours:,.0f} |"


TABLES: dict[str, Any] = {"update": update_table, "cluster": cluster_table, "translation": translation_table}


def main() -> None:
    """Print all tables."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    for rows in TABLES.values():
        print("\n".join(rows()), end="\n\n")


if __name__ == "__main__":
    main()
