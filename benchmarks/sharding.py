"""Memory saved, time lost and results changed by `training.sharded`, with two processes of one thread.

    python -m benchmarks.sharding [--recipe RECIPE] [--vocabulary V] [--updates N]

Model, loss and optimiser are those of a recipe; sentences have the lengths of Multi30k's and random pieces.
"""

from __future__ import annotations

import argparse
import gc
import json
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmarks.lengths import sentence_lengths
from benchmarks.machine import description, peak_bytes, resident_bytes
from benchmarks.scale_measured import in_group
from benchmarks.training import SEED, RandomStore
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.experiment import Experiment
from jointnmt.models import build_model
from jointnmt.training.devices import launch_fabric
from jointnmt.training.memory import keep_freed_memory, return_freed_memory
from jointnmt.training.trainer import Trainer

PROCESSES = 2
BATCHES = {"max_tokens": 200, "update_tokens": 400}


def measure(recipe: Path, vocabulary: int, updates: int, sharded: bool) -> dict[str, Any]:
    """Updates in this process, which trains with the others of its group: seconds, losses and memory afterwards."""
    changes = [f"training.sharded={str(sharded).lower()}", "training.precision=float32", "training.accelerator=cpu"]
    experiment = Experiment.load(recipe, changes)
    _ = return_freed_memory() if sharded else keep_freed_memory()  # as in `train`
    empty = resident_bytes("cpu")
    fabric, lengths = launch_fabric(experiment.training), sentence_lengths("Multi30k")
    store: Any = RandomStore(lengths.source, lengths.target, vocabulary)
    model = build_model(experiment.model, vocabulary, vocabulary)
    trainer = Trainer(fabric, model, store, experiment.training, BatchConfig(**BATCHES), SEED)
    steps = trainer.steps()
    reports = [next(steps) for _ in range(updates)]
    gc.collect()
    parameters = list(model.parameters())
    moments = [state[key] for state in trainer.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    kept = {"weights": parameters, "moments": moments, "gradients": [parameter.grad for parameter in parameters]}
    return {
        "sharded": sharded,
        "losses": [report.sums.loss / report.sums.loss_units for report in reports],
        "norms": [report.gradient_norm for report in reports],
        "seconds": mean(report.seconds for report in reports[1:]),
        **{f"{name}_bytes": sum(map(_bytes, tensors)) for name, tensors in kept.items()},
        "empty_bytes": empty,
        "resident_bytes": resident_bytes("cpu"),
        "peak_bytes": peak_bytes("cpu"),
    }


def _bytes(tensor: Tensor | None) -> int:
    """Bytes of the part of a tensor in this process."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return 0 if local is None else local.nbytes


def main() -> None:
    """Measure, and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/wmt14/en-de-big.yaml"))
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--updates", type=int, default=4)
    asked = parser.parse_args()
    print(json.dumps(description()))
    for sharded in (False, True):
        act = partial(measure, asked.recipe, asked.vocabulary, asked.updates, sharded)
        print(json.dumps(in_group(act, PROCESSES)), flush=True)


if __name__ == "__main__":
    main()
