"""A model of any family that is sharded over processes computes the same as the whole model."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from jointnmt.data.batches import load, load_share, shard_each
from jointnmt.ops import masks_of_rows
from jointnmt.training.loss import cross_entropy_sums
from jointnmt.training.sharding import ShardedGradients, ShardedModel
from support.commands import Commands
from support.families import VARIANTS, tiny_model
from support.tiny import ListStore

WORLD = 2
DROPOUT = {"dropout": 0.3, "embedding_dropout": 0.3, "attention_dropout": 0.3, "hidden_dropout": 0.3}
STORE = ListStore(num_pairs=7)
UPDATE = [np.array([3, 0, 6, 2, 5]), np.array([1])]
"""One of two processes has no part of the second batch."""
CHOSEN = {
    "transformer-tied": True,
    "transformer-fusion": False,
    "reformer-fast-shortcuts": True,
}
"""Variants, without or with activation checkpointing: all ways in which layers share and use weights."""


def faults(folder: Path, rank: int) -> list[str]:
    """Variants in which the sharded model differs from the whole one, and the differences."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=WORLD)
    found = [
        f"{variant}: {fault}"
        for variant, checkpointing in CHOSEN.items()
        if (fault := _fault(variant, checkpointing, rank))
    ]
    distributed.destroy_process_group()
    return found


def _fault(variant: str, checkpointing: bool, rank: int) -> str:
    fields = VARIANTS[variant].model_fields
    changes = {key: value for key, value in DROPOUT.items() if key in fields}
    whole, model = (tiny_model(variant, **changes, activation_checkpointing=checkpointing).train() for _ in range(2))
    sharded, gradients = ShardedModel(model), ShardedGradients(model)
    for _ in range(2):  # gradients of one update must not enter the next
        whole.zero_grad()
        gradients.zero()
        for batches, computed in (
            ([load(STORE, pairs) for pairs in UPDATE], whole),
            ([load_share(STORE, share) for share in shard_each(UPDATE, STORE.lengths, rank, WORLD)], model),
        ):
            for batch in batches:
                part = batch.part
                torch.manual_seed(part.first_pair)
                with masks_of_rows(part.begin, part.begin + len(batch), part.whole):
                    # Two passes, as in R-Drop, use the weights twice before the gradients are computed.
                    passes = [computed(batch.source, batch.target_input) for _ in range(2 if checkpointing else 1)]
                losses = [cross_entropy_sums(logits, batch.target_output, 0.1)[0] for logits in passes]
                with masks_of_rows(part.begin, part.begin + len(batch), part.whole):  # of recomputed layers
                    torch.stack(losses).sum().backward()
    kept = sum(weight.to_local().numel() for weight in model.parameters() if isinstance(weight, DTensor))
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in whole.parameters() if weight.grad is not None])
    checks = {
        "gradients": all(
            torch.allclose(mine.grad.full_tensor(), its.grad, rtol=1e-9, atol=1e-9)
            for mine, its in zip(model.parameters(), whole.parameters(), strict=True)
        ),
        "their norm": abs(gradients.norm() / norm.item() - 1) < 1e-9,
        "weights": all(map(torch.equal, sharded.whole().parameters(), whole.parameters())),
        "share": kept < 0.7 * sum(weight.numel() for weight in whole.parameters()),
    }
    return ", ".join(name for name, holds in checks.items() if not holds)


@pytest.mark.slow
def test_gradients_and_weights_are_those_of_the_whole_model(commands: Commands, tmp_path: Path) -> None:
    with ProcessPoolExecutor(WORLD, commands.context) as pool:
        assert list(pool.map(partial(faults, tmp_path), range(WORLD))) == [[], []]
