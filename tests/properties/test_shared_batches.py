"""A batch divided in any way among processes is computed as by one process, dropout included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from jointnmt.data.batch import Batch
from jointnmt.data.batches import load, load_share, shard
from jointnmt.models import TranslationModel
from jointnmt.ops import backend, masks_of_rows
from jointnmt.training.loss import cross_entropy_sums
from support.families import VARIANTS, tiny_model
from support.tiny import ListStore

DROPOUT = {"dropout": 0.3, "embedding_dropout": 0.3, "attention_dropout": 0.3, "hidden_dropout": 0.3}
STORE = ListStore(num_pairs=7)
PAIRS = np.array([3, 0, 6, 2, 5, 1])


def dropping(variant: str, **sizes: int) -> TranslationModel:
    """A model in training mode, with every kind of dropout."""
    changes = {key: value for key, value in DROPOUT.items() if key in VARIANTS[variant].model_fields}
    return tiny_model(variant, **changes, **sizes).train()


def loss_and_gradients(model: TranslationModel, batches: list[Batch]) -> list[Tensor]:
    """Results summed over these batches, as processes sum theirs."""
    total = torch.zeros(())
    model.zero_grad()
    for batch in batches:
        part = batch.part
        torch.manual_seed(part.first_pair)
        with masks_of_rows(part.begin, part.begin + len(batch), part.whole):
            loss, _ = cross_entropy_sums(model(batch.source, batch.target_input), batch.target_output, 0.1)
            loss.backward()
        total = total + loss.detach()
    return [total, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def shares(world: int) -> list[Batch]:
    """The processes' parts of one batch."""
    deals = [shard([PAIRS], STORE.lengths, rank, world) for rank in range(world)]
    return [load_share(STORE, share) for deal in deals for share in deal]


@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize("world", [2, 5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_of_a_batch_come_to_the_whole(variant: str, world: int, checkpointing: bool) -> None:
    model = dropping(variant, activation_checkpointing=checkpointing)
    whole = loss_and_gradients(model, [load(STORE, PAIRS)])
    parts = shares(world)
    assert len(parts) == world and all(part.shared for part in parts)
    for one, other in zip(loss_and_gradients(model, parts), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_so_they_do_with_kernels(variant: str, dtype: torch.dtype) -> None:
    """With one head, a row may have an odd number of attention weights; kernels draw two numbers at once."""
    model = dropping(variant, embed_dim=32, ffn_dim=48, num_heads=1).float()
    with backend("native"), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        whole = loss_and_gradients(model, [load(STORE, PAIRS)])
        parts = loss_and_gradients(model, shares(3))
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    for one, other in zip(parts, whole, strict=True):
        assert (one - other).norm() <= tolerance * (1 + other.norm())
