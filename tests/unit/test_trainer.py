"""The trainer: the same update for any batches, processes and mishaps."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

from jointnmt.data.batch import Batch
from jointnmt.data.batches import load, plan_epoch, shard
from jointnmt.errors import DataError, ModelError
from jointnmt.models.interface import AttentionMaps
from jointnmt.ops.native.allocator import allocator
from jointnmt.ops.out_of_memory import is_out_of_memory, release_memory
from jointnmt.training.gradients import norm_of
from jointnmt.training.report import StepReport
from jointnmt.training.schedule import learning_rate
from jointnmt.training.trainer import Trainer, _seed_torch
from support.tiny import ListStore, TinyModel, tiny_trainer


def reports(trainer: Trainer, count: int) -> list[StepReport]:
    return list(itertools.islice(trainer.steps(), count))


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def assert_same(one: Trainer, other: Trainer) -> None:
    """Check that both have bit-identical weights."""
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_an_update_may_average_over_sentences() -> None:
    """The loss is the mean over the update's sentences of each one's mean, however they are batched."""
    trainers = [
        tiny_trainer(dropout=0.0, loss_mean=mean, clip_norm=None, batches={"max_tokens": tokens, "update_tokens": 64})
        for mean, tokens in (("sentences", 24), ("tokens", 24))
    ]
    update = plan_epoch(*trainers[0].store.lengths, trainers[0].batches, trainers[0].seed, 0)[0]
    batch, model = load(trainers[0].store, np.concatenate(update)), TinyModel()
    model.load_state_dict(weights(trainers[0]))
    losses = torch.nn.functional.cross_entropy(
        model(batch.source, batch.target_input).transpose(1, 2),
        batch.target_output,
        ignore_index=0,
        label_smoothing=0.1,
        reduction="none",
    )
    loss = (losses.sum(1) / batch.target_mask.sum(1)).mean()
    loss.backward()
    expected = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
    (report,) = reports(trainers[0], 1)
    assert report.gradient_norm == pytest.approx(expected.item(), rel=1e-5)
    assert report.sums.loss / report.sums.loss_units == pytest.approx(loss.item(), rel=1e-5)
    assert report.sums.loss_units == report.sums.sentences
    assert reports(trainers[1], 1)[0].gradient_norm != pytest.approx(expected.item(), rel=1e-3)


def test_r_drop_draws_two_passes_together() -> None:
    """An update against plain torch: two passes with masks of their own, each with weight 1/2, and their divergence."""
    trainer = tiny_trainer(dropout=0.3, clip_norm=None, label_smoothing=0.1, r_drop=4.0)
    model = TinyModel(dropout=0.3).train()
    model.load_state_dict(weights(trainer))
    losses, update = [], plan_epoch(*trainer.store.lengths, trainer.batches, trainer.seed, 0)[0]
    batches = [load(trainer.store, indices) for indices in update]
    tokens = sum(batch.num_target_tokens for batch in batches)
    for batch in batches:
        _seed_torch(trainer.seed, 1, batch.part.first_pair)
        one, other = (model(batch.source, batch.target_input) for _ in range(2))
        assert not torch.equal(one, other)
        gold = batch.target_output.flatten()
        entropies = [
            torch.nn.functional.cross_entropy(
                each.flatten(0, 1), gold, ignore_index=0, label_smoothing=0.1, reduction="sum"
            )
            for each in (one, other)
        ]
        p, q = (each.flatten(0, 1)[gold != 0].log_softmax(-1) for each in (one, other))
        apart = ((p.exp() - q.exp()) * (p - q)).sum() / 2
        loss = (entropies[0] + entropies[1]) / 2 + 4.0 / 2 * apart
        (loss / tokens).backward()
        losses.append(loss.item())
    expected = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
    (report,) = reports(trainer, 1)
    assert report.sums.loss == pytest.approx(sum(losses), rel=1e-5)
    assert report.gradient_norm == pytest.approx(expected.item(), rel=1e-4)
    assert report.sums.nll < report.sums.loss


class Confident(TinyModel):
    """Adds a penalty of confidence (Pereyra et al. 2017): the negative entropy of each prediction."""

    def extra_loss(self, logits: Tensor, target_output: Tensor, weights: Tensor) -> Tensor:
        log_probabilities = logits.log_softmax(-1)
        return 0.5 * ((log_probabilities.exp() * log_probabilities).sum(-1) * weights).sum()


@pytest.mark.parametrize("mean", ["tokens", "sentences"])
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_a_family_may_add_a_term_to_the_loss(mean: str, r_drop: float) -> None:
    """Summed sentence by sentence, whatever the batches; without dropout, both passes of R-Drop agree."""
    batches = {"max_tokens": 24, "update_tokens": 64}
    trainers = [
        tiny_trainer(model=kind(), loss_mean=mean, clip_norm=None, r_drop=r_drop, batches=batches)
        for kind in (Confident, TinyModel)
    ]
    model = Confident()
    for trainer in trainers:
        trainer.model.load_state_dict(model.state_dict())
    update = plan_epoch(*trainers[0].store.lengths, trainers[0].batches, trainers[0].seed, 0)[0]
    loss = nll = units = 0.0
    for batch in (load(trainers[0].store, [pair]) for pair in np.concatenate(update)):
        predicted = model(batch.source, batch.target_input).log_softmax(-1)[0]
        gold = batch.target_output[0]
        one = -0.9 * predicted[range(len(gold)), gold] - 0.1 * predicted.mean(-1)
        one = one + 0.5 * (predicted.exp() * predicted).sum(-1)
        share = 1 / len(gold) if mean == "sentences" else 1.0
        loss, units = loss + share * one.sum(), units + share * len(gold)
        nll -= predicted[range(len(gold)), gold].sum().item()
    (loss / units).backward()
    expected = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
    (report,), (without,) = (reports(trainer, 1) for trainer in trainers)
    assert len(update) > 1
    assert report.sums.loss == pytest.approx(loss.item(), rel=1e-5) and report.sums.nll == pytest.approx(nll, rel=1e-5)
    assert report.gradient_norm == pytest.approx(expected.item(), rel=1e-5)
    assert without.sums.loss != pytest.approx(loss.item(), rel=1e-3)


def test_r_drop_of_passes_that_agree_changes_nothing() -> None:
    plain, doubled = (tiny_trainer(dropout=0.0, r_drop=weight) for weight in (0.0, 5.0))
    for one, other in zip(reports(plain, 3), reports(doubled, 3), strict=True):
        assert other.sums.loss == pytest.approx(one.sums.loss, rel=1e-6)
        assert other.sums.nll == pytest.approx(one.sums.nll, rel=1e-6)
        assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)


def test_an_update_is_adamw_on_the_smoothed_loss_per_true_token() -> None:
    """One update against plain torch: the whole update as one batch, its loss divided by its target tokens."""
    trainer = tiny_trainer(
        dropout=0.0, clip_norm=0.1, label_smoothing=0.1, optimizer={"weight_decay": 0.1}, batches={"max_tokens": 24}
    )
    reference = TinyModel()
    reference.load_state_dict(weights(trainer))
    update = plan_epoch(*trainer.store.lengths, trainer.batches, trainer.seed, 0)[0]
    assert len(update) > 1
    batch = load(trainer.store, np.concatenate(update))
    (report,) = reports(trainer, 1)

    optimizer = torch.optim.AdamW(reference.parameters(), lr=report.learning_rate, betas=(0.9, 0.997), weight_decay=0.1)
    logits = reference(batch.source, batch.target_input)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.target_output.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum"
    )
    (loss / batch.num_target_tokens).backward()
    norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
    optimizer.step()

    assert report.sums.target_tokens == batch.num_target_tokens
    assert report.sums.source_tokens == batch.num_source_tokens
    assert report.sums.cells == batch.num_real_cells <= report.sums.padded_cells < batch.num_cells
    assert report.sums.loss == pytest.approx(loss.item(), rel=1e-6)
    assert report.gradient_norm == pytest.approx(norm.item(), rel=1e-5)
    assert norm > 0.1
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], tensor, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "optimizer",
    [{}, {"betas": (0.8, 0.95), "epsilon": 1e-3, "weight_decay": 0.3}],
    ids=["default", "other betas, epsilon, decay"],
)
def test_many_updates_are_those_of_adam_written_out_in_float64(optimizer: dict[str, Any]) -> None:
    """Loshchilov and Hutter 2019, Algorithm 2, with the gradient clipped and the rate of the schedule."""
    trainer = tiny_trainer(dropout=0.0, clip_norm=0.5, label_smoothing=0.1, optimizer=optimizer)
    config = trainer.config.optimizer
    model = TinyModel().double()
    model.load_state_dict(weights(trainer))
    means, squares = ([torch.zeros_like(weight) for weight in model.parameters()] for _ in range(2))
    lengths, count = trainer.store.lengths, 60
    epochs = (plan_epoch(*lengths, trainer.batches, trainer.seed, epoch) for epoch in itertools.count())
    first, second = config.betas
    for step, update in enumerate(itertools.islice(itertools.chain.from_iterable(epochs), count), start=1):
        batch = load(trainer.store, np.concatenate(update))
        losses = torch.nn.functional.cross_entropy(
            model(batch.source, batch.target_input).transpose(1, 2),
            batch.target_output,
            ignore_index=0,
            label_smoothing=0.1,
            reduction="sum",
        )
        gradients = torch.autograd.grad(losses / batch.num_target_tokens, list(model.parameters()))
        norm = sum(float(gradient.square().sum()) for gradient in gradients) ** 0.5
        rate = learning_rate(trainer.config.schedule, step)
        for weight, gradient, mean, square in zip(model.parameters(), gradients, means, squares, strict=True):
            gradient = gradient * min(1.0, 0.5 / norm)
            mean.mul_(first).add_((1 - first) * gradient)
            square.mul_(second).add_((1 - second) * gradient**2)
            unbiased = mean / (1 - first**step), square / (1 - second**step)
            with torch.no_grad():
                weight.mul_(1 - rate * config.weight_decay)
                weight.sub_(rate * unbiased[0] / (unbiased[1].sqrt() + config.epsilon))
    reports(trainer, count)
    for name, expected in model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name].double(), expected, rtol=1e-4, atol=1e-4)


def test_how_an_update_is_cut_into_batches_does_not_matter() -> None:
    small = tiny_trainer(dropout=0.0, batches={"max_tokens": 18, "update_tokens": 10_000})
    large = tiny_trainer(dropout=0.0, batches={"max_tokens": 10_000, "update_tokens": 10_000})
    for one, other in zip(reports(small, 5), reports(large, 5), strict=True):
        assert one.sums.loss == pytest.approx(other.sums.loss, rel=1e-5)
    for name, tensor in weights(small).items():
        torch.testing.assert_close(tensor, large.model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_an_epoch_is_every_pair_once() -> None:
    trainer, seen = tiny_trainer(), []
    for report in trainer.steps():
        seen.append(report)
        if report.ends_epoch:
            break
    assert sum(report.sums.sentences for report in seen) == len(trainer.store)
    assert len(seen) == seen[0].epoch_updates > 2
    assert (trainer.position.epoch, trainer.position.update) == (1, 0)


@pytest.mark.parametrize("done", [1, 4, 7])
def test_going_on_equals_not_stopping(done: int) -> None:
    """Bit for bit, with dropout, shuffling and accumulation, in the middle of an epoch and after its end."""
    whole, first = tiny_trainer(), tiny_trainer()
    expected = reports(whole, 12)
    assert 1 < expected[0].epoch_updates < 12
    reports(first, done)
    tensors, values = first.state()
    second = tiny_trainer()
    second.load_state({name: tensor.clone() for name, tensor in tensors.items()}, values)
    torch.manual_seed(12345)  # the state of torch's generator is not part of it
    for one, other in zip(reports(second, 12 - done), expected[done:], strict=True):
        assert (one.sums, one.position, one.gradient_norm) == (other.sums, other.position, other.gradient_norm)
    assert_same(whole, second)


def test_the_norm_of_many_numbers_misses_nothing() -> None:
    numbers = torch.rand(2**23, generator=torch.Generator().manual_seed(0))
    squares = numbers.double().square().sum().item()
    assert norm_of([numbers, torch.tensor([[900.0]])]).item() == pytest.approx(math.sqrt(squares + 900**2), rel=1e-5)


def test_dropout_differs_from_update_to_update() -> None:
    """With a learning rate near zero, only dropout can change an update's loss from epoch to epoch."""
    settings: dict[str, Any] = {"schedule": {"peak_rate": 1e-12, "initial_rate": 0, "warmup_steps": 0}}
    noisy, quiet = (
        [report.sums.loss for report in reports(tiny_trainer(dropout, {"update_tokens": 10_000}, **settings), 2)]
        for dropout in (0.5, 0.0)
    )
    assert noisy[0] != pytest.approx(noisy[1], rel=1e-4)
    assert quiet[0] == pytest.approx(quiet[1], rel=1e-6)
    alone = tiny_trainer(0.5, store=ListStore(num_pairs=1), **settings)  # every update begins with the same pair
    assert len({report.sums.loss for report in reports(alone, 4)}) == 4


class SmallMemory(TinyModel):
    """Has no memory for more than `most` sentences at once: fails in the forward or during the backward pass."""

    def __init__(self, most: int, backward: bool, message: str) -> None:
        super().__init__()
        self.most, self.in_backward, self.message = most, backward, message

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        logits = super().forward(source, target_input)
        if len(source) > self.most:
            if not self.in_backward:
                raise RuntimeError(self.message)
            # The projection's gradient has been added already when this fails.
            self.embedding.weight.register_hook(lambda _: None)
            logits = _FailBackward.apply(logits, self.message)
        return logits


class _FailBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, message: str) -> Tensor:
        ctx.message = message
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise RuntimeError(ctx.message)


CPU_MESSAGE = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000 bytes."


@pytest.mark.parametrize("backward", [False, True])
def test_a_batch_that_does_not_fit_is_split(backward: bool) -> None:
    sizes = {"max_tokens": 48, "update_tokens": 200}
    roomy = tiny_trainer(dropout=0.0, batches=sizes)
    cramped = tiny_trainer(batches=sizes, model=SmallMemory(3, backward, CPU_MESSAGE))
    cramped.model.load_state_dict(weights(roomy))
    for one, other in zip(reports(cramped, 4), reports(roomy, 4), strict=True):
        assert one.sums.splits > 0 == other.sums.splits
        assert one.sums.loss == pytest.approx(other.sums.loss, rel=1e-5)
        assert one.sums.sentences == other.sums.sentences
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-5)
    for name, tensor in weights(cramped).items():
        torch.testing.assert_close(tensor, roomy.model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_a_single_sentence_that_does_not_fit_is_named() -> None:
    trainer = tiny_trainer(model=SmallMemory(0, False, CPU_MESSAGE))
    with pytest.raises(DataError, match=r"train\.de:\d+, \d+ source and \d+ target tokens, \d+ cells"):
        reports(trainer, 1)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    trainer = tiny_trainer(model=SmallMemory(0, False, "mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1"):
        reports(trainer, 1)


def test_memory_that_is_kept_unused_is_given_back() -> None:
    large = allocator.empty((2**25,), torch.float32)
    held = allocator.reserved_bytes
    del large
    assert allocator.reserved_bytes == held
    release_memory()
    assert allocator.reserved_bytes <= held - 2**27


def test_lack_of_memory_is_recognised() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError(CPU_MESSAGE))
    assert is_out_of_memory(RuntimeError("could not create a primitive"))
    assert not is_out_of_memory(RuntimeError("expected scalar type Long"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)  # a petabyte, for torch's own error
    assert is_out_of_memory(caught.value)


class Exploding(TinyModel):
    """A model whose logits are NaN for a source with the token `bad`."""

    bad = 5

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        return super().forward(source, target_input) + torch.where((source == self.bad).any(), math.nan, 0.0)


def test_a_loss_that_is_not_finite_stops_the_run_with_the_batch_named() -> None:
    trainer = tiny_trainer(model=Exploding(), batches={"max_tokens": 9, "update_tokens": 30})
    with pytest.raises(ModelError, match=r"update \d+ is not finite, in the batch of train\.de:\d+") as caught:
        reports(trainer, 100)
    for batch in str(caught.value).split("the batch of")[1:]:
        lines = re.findall(r"train\.de:(\d+)", batch)
        assert any(Exploding.bad in trainer.store.pairs([int(line) - 1])[0][0] for line in lines)


def test_a_large_batch_is_named_by_its_first_sentences() -> None:
    trainer = tiny_trainer(
        model=Exploding(), batches={"max_tokens": 1000, "update_tokens": 1000, "overhead_cells": 10**6}
    )
    with pytest.raises(ModelError, match=r"the batch of (train\.de:\d+, ){5}and 35 more"):
        reports(trainer, 1)


def test_a_loss_that_is_not_finite_is_skipped_if_so_configured() -> None:
    trainer = tiny_trainer(model=Exploding(), non_finite="skip", batches={"max_tokens": 9, "update_tokens": 30})
    before, skipped = weights(trainer), set()
    for report in itertools.islice(trainer.steps(), 10):
        after = weights(trainer)
        assert report.skipped == math.isnan(report.sums.loss)
        assert report.skipped == all(torch.equal(before[name], after[name]) for name in after)
        before = after
        skipped.add(report.skipped)
    assert skipped == {True, False}
    assert trainer.position.step == 10
    assert all(tensor.isfinite().all() for tensor in weights(trainer).values())


class SteepModel(TinyModel):
    """A model with a finite loss and an infinite gradient."""

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        logits = super().forward(source, target_input)
        return logits + (self.projection.bias[0] * 0).abs().sqrt()  # the slope of the root is infinite at 0


def test_a_gradient_that_is_not_finite_stops_the_run_too() -> None:
    with pytest.raises(ModelError, match="gradient of update 1 is not finite"):
        reports(tiny_trainer(model=SteepModel()), 1)
    (report,) = reports(tiny_trainer(model=SteepModel(), non_finite="skip"), 1)
    assert report.skipped


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains_float32_weights(precision: str) -> None:
    single, mixed = tiny_trainer(), tiny_trainer(precision=precision)
    losses = [
        [report.sums.loss / report.sums.target_tokens for report in reports(each, 60)] for each in (single, mixed)
    ]
    assert losses[1][-1] == pytest.approx(losses[0][-1], abs=0.05)
    assert losses[1][-1] < losses[1][0] - 0.2
    assert {tensor.dtype for tensor in weights(mixed).values()} == {torch.float32}


def test_float16_goes_on_with_its_loss_scale() -> None:
    whole, first, second = (tiny_trainer(precision="float16") for _ in range(3))
    reports(whole, 6)
    reports(first, 3)
    second.load_state(*first.state())
    reports(second, 3)
    assert_same(whole, second)


def test_float16_finds_its_loss_scale_without_touching_the_weights() -> None:
    trainer = tiny_trainer(precision="float16")
    tensors, values = trainer.state()
    values["scaler"]["scale"] = 2.0**120  # overflows
    trainer.load_state(tensors, values)
    before = weights(trainer)
    (report,) = reports(trainer, 1)
    assert report.skipped
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trainer).items())
    assert trainer.state()[1]["scaler"]["scale"] < 2.0**120


@pytest.mark.parametrize("rank", [0, 1])
def test_an_empty_share_of_an_update_adds_nothing(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one pair for two processes, one has no batch, and still takes part in the update."""
    trainer = tiny_trainer(store=ListStore(num_pairs=1))
    [[batch]] = plan_epoch(*trainer.store.lengths, trainer.batches, trainer.seed, 0)
    monkeypatch.setattr(Fabric, "world_size", 2)
    monkeypatch.setattr(Fabric, "global_rank", rank)
    (report,) = reports(trainer, 1)
    if shard([batch], trainer.store.lengths, rank, 2):
        assert report.sums.sentences == 1
    else:
        assert (report.sums.sentences, report.sums.loss, report.gradient_norm, report.skipped) == (0, 0, 0, False)


def test_the_smallest_part_of_a_batch_keeps_its_sentence() -> None:
    batch = Batch.collate([[4, 5], [6]], [[7], [8, 9]], [3, 8])
    assert [half.indices for half in batch.split()] == [(3,), (8,)]
