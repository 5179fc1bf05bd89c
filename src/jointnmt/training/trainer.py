"""The trainer computes: forward, backward, update. Files, logs, validation and stopping belong to the loop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from jointnmt.data.batch import Batch
from jointnmt.data.batches import UpdateBatches, load_share, shard, shard_each
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.data.mixture import plan_mixture
from jointnmt.data.store import SegmentedText, TokenStore
from jointnmt.errors import DataError, ModelError
from jointnmt.experiment import OptimizerConfig, TrainingConfig
from jointnmt.models.interface import TranslationModel
from jointnmt.ops import adapt_waiting, masks_of_rows
from jointnmt.ops.autocast import autocast_to
from jointnmt.ops.cuda_graph import GraphsByShape, captures
from jointnmt.ops.out_of_memory import is_out_of_memory, release_memory
from jointnmt.runs.weights import IN_STATE, weights_of_state
from jointnmt.training.gradients import FlatGradients, Gradients
from jointnmt.training.loss import cross_entropy_sums, divergence_sum, token_weights
from jointnmt.training.optimizer import (
    check_places,
    find_optimizer,
    load_optimizer_state,
    make_optimizer,
    places,
    set_rate,
    state_of_optimizer,
)
from jointnmt.training.processes import gather, is_unreachable, lost_process, num_processes, sum_numbers, synchronise
from jointnmt.training.report import Loss, Position, StepReport, Sums
from jointnmt.training.schedule import find_decay, learning_rate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from jointnmt.data.bpe_dropout import ResegmentedStore
    from jointnmt.training.sharding import ShardedModel

logger = logging.getLogger(__name__)

SMALLEST_SCALE = 1e-3
"""Float16 loss scale below which overflow must have another cause."""

NAMED_SENTENCES = 5
"""Most sentences of a batch that an error message names."""


class Trainer:
    """Trains a model on a token store, update by update.

    An update is a list of batches, distributed over the processes. Each process sums its batches' gradients into one
    flat buffer, the buffer is summed over the processes (unless `training.sharded`), and every process makes the same
    update: processes may have different numbers of batches, and a batch may be split. The loss is divided by the number
    of real target tokens (with `loss_mean` sentences: of sentences) of the whole update.

    Dropout is seeded by (seed, update, first pair of the batch), so that a resumed training has the same dropout masks;
    models take them from torch's global generator. Processes that share a batch use the masks of their rows of it: an
    update is the same up to rounding, whatever their number. The order of the data is a function of (seed, epoch).

    Args:
        fabric: launched fabric, with device and processes.
        model: model to train, moved to the fabric's device.
        store: segmented training data.
        config: settings of loss, optimiser and precision, which must not be `auto`.
        batches: sizes of batches and updates.
        seed: seed of data order and dropout.
        resegmented: the store segmented again in each epoch (BPE dropout); None: the store's segmentation.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: TranslationModel,
        store: TokenStore,
        config: TrainingConfig,
        batches: BatchConfig,
        seed: int,
        resegmented: ResegmentedStore | None = None,
    ) -> None:
        adapt_waiting()
        self._resegmented = resegmented
        self.fabric, self.store, self.config, self.batches, self.seed = fabric, store, config, batches, seed
        self.model = model.to(fabric.device)
        self._by_sentence = config.loss_mean == "sentences"
        self.position = Position()
        self._interrupted = False
        synchronise(self.model)
        self._shards, self._gradients = _divided(self.model, config.sharded)
        self._forward = torch.compile(self.model, dynamic=True) if config.compile else self.model
        self._graphs = GraphsByShape(self._add_gradient) if self._may_capture() else None
        self._places = places(self.model) if isinstance(config.optimizer, OptimizerConfig) else {}
        self.optimizer = make_optimizer(config.optimizer, self.model, config.schedule.initial_rate, fabric.device)
        self._scaler = torch.amp.GradScaler(fabric.device.type, enabled=config.precision == "float16")

    def _may_capture(self) -> bool:
        """Whether backward passes may be captured as CUDA graphs."""
        # A graph cannot restore the generator's state to recompute layers with the same dropout masks.
        if self._shards is not None or self.config.compile or self.model.recomputes_layers:
            return False
        family = type(self.model)
        if vars(family).get("capturable", False):
            return True
        if captures(self.fabric.device):
            logger.info("updates are not replayed as CUDA graphs: %s does not set `capturable`", family.__name__)
        return False

    def ask_to_stop(self) -> None:
        """Request a stop: the next report says so to all processes."""
        self._interrupted = True

    def steps(self) -> Iterator[StepReport]:
        """Make updates, epoch after epoch, indefinitely; the caller stops iterating.

        Between two reports the trainer's state is consistent and may be saved.

        Raises:
            DataError: if a single sentence pair does not fit in memory, or, with `training.sharded`, a batch.
            LostProcessError: if another process of the training has ended.
            ModelError: if a loss is not finite, unless such updates are skipped.
        """
        while True:
            began = time.perf_counter()
            epoch = self.position.epoch
            text = self._resegmented.of_epoch(epoch) if self._resegmented else self.store
            plan = plan_mixture(self.store, text, self.batches, self.seed, epoch)
            epoch_updates = len(plan)
            for update, batches in self._load_ahead(text, plan.since(self.position.update)):
                divisor = sum(
                    len(indices) if self._by_sentence else int(text.lengths[1][indices].sum()) for indices in update
                )
                yield self._step(batches, divisor, epoch_updates, began)
                began = time.perf_counter()

    def _load_ahead(
        self, text: SegmentedText, updates: Iterator[UpdateBatches]
    ) -> Iterator[tuple[UpdateBatches, list[Batch]]]:
        """Updates, each with this process's batches; the next one is planned and loaded in the background."""
        rank, processes = self.fabric.global_rank, self.fabric.world_size
        shares = shard if self._shards is None else shard_each

        def load_mine() -> tuple[UpdateBatches, list[Batch]] | None:
            update = next(updates, None)
            if update is None:
                return None
            return update, [load_share(text, share) for share in shares(update, text.lengths, rank, processes)]

        with ThreadPoolExecutor(1) as loader:
            ahead = loader.submit(load_mine)
            while (loaded := ahead.result()) is not None:
                ahead = loader.submit(load_mine)
                yield loaded

    def _step(self, batches: list[Batch], divisor: int, epoch_updates: int, began: float) -> StepReport:
        step = self.position.step + 1
        batches, losses, splits = self._accumulate(batches, step, divisor)
        sums = self._sum(batches, losses, splits)
        if finite := math.isfinite(sums.loss):
            self._gradients.sum()
        elif self.config.non_finite == "stop":
            raise ModelError(self._name_non_finite(batches, losses, step))
        rate = learning_rate(self.config.schedule, step)
        norm = self._update(rate, step) if finite else math.nan
        epochs, update = divmod(self.position.update + 1, epoch_updates)
        self.position = Position(step, self.position.epoch + epochs, update)
        seconds = time.perf_counter() - began
        return StepReport(self.position, epoch_updates, sums, norm, rate, seconds, skipped=not math.isfinite(norm))

    def _accumulate(self, batches: list[Batch], step: int, divisor: int) -> tuple[list[Batch], list[Loss], int]:
        """Sum the gradients of all batches; return the batches as computed, their losses, and the number of splits.

        After a batch that did not fit in memory, all are recomputed: part of its gradient may have been added.
        """
        splits = 0
        while True:
            losses: list[Tensor] = []
            failed = self._backward(batches, step, divisor, losses)
            if failed is None:
                return batches, [Loss(*pair) for pair in torch.stack(losses).tolist()] if losses else [], splits
            if self._shards is not None:
                raise DataError(self._name_unsplit(batches[failed]))
            if len(batches[failed]) == 1:
                raise DataError(self._name_too_large(batches[failed]))
            batches = [*batches[:failed], *batches[failed].split(), *batches[failed + 1 :]]
            splits += 1
            if self._graphs is not None:
                self._graphs.close()
            release_memory()

    def _backward(self, batches: list[Batch], step: int, divisor: int, losses: list[Tensor]) -> int | None:
        """Forward and backward of each batch; return the number of the first that does not fit in memory, or None.

        Appends each batch's [loss, nll] to `losses`, on the device, without synchronising with it.
        """
        self.model.train()
        self._gradients.zero()
        units = torch.full((), float(divisor), device=self.fabric.device)
        for number, batch in enumerate(batches):
            try:
                batch = batch.to(self.fabric.device)
                part = batch.part
                _seed_torch(self.seed, step, part.first_pair)
                inputs = batch.source, batch.target_input, batch.target_output, units
                if self._graphs is not None and batch.shared is None:
                    losses.append(self._graphs.run(*inputs, memory=list(self.model.buffers())))
                else:
                    with masks_of_rows(part.begin, part.begin + len(batch), part.whole):
                        losses.append(self._add_gradient(*inputs))
            except (RuntimeError, MemoryError) as error:
                if is_out_of_memory(error):
                    return number
                if isinstance(error, RuntimeError) and is_unreachable(error):  # when a sharded model is gathered
                    raise lost_process(error) from error
                raise
        return None

    def _add_gradient(self, source: Tensor, target_input: Tensor, target_output: Tensor, units: Tensor) -> Tensor:
        """Forward and backward of a batch; the gradient is divided by `units`. Returns its [loss, nll]."""
        weights = token_weights(target_output, self._by_sentence)
        passes: list[tuple[Tensor, Tensor | None]] = []
        with autocast_to(self.config.precision, self.fabric.device):
            for _ in range(2 if self.config.r_drop else 1):
                logits = self._forward(source, target_input)
                passes.append((logits, self.model.extra_loss(logits, target_output, weights)))
        losses = [self._losses(logits, extra, target_output) for logits, extra in passes]
        loss, nll = losses[0]
        if self.config.r_drop:
            # Half of R-Drop's loss (Liang et al. 2021, Eq. 4): equal to the loss of one pass if both passes agree.
            (first, _), (second, _) = passes
            other, other_nll = losses[1]
            apart = divergence_sum(first, second, target_output, self._by_sentence)
            loss, nll = (loss + other + self.config.r_drop * apart) / 2, (nll + other_nll) / 2
        self._scaler.scale(loss / units).backward()
        return torch.stack([loss.detach(), nll])

    def _losses(self, logits: Tensor, extra: Tensor | None, target_output: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a pass, with the family's own term, and its negative log-likelihood."""
        loss, nll = cross_entropy_sums(logits, target_output, self.config.label_smoothing, self._by_sentence)
        return loss if extra is None else loss + extra, nll

    def _sum(self, batches: list[Batch], losses: list[Loss], splits: int) -> Sums:
        """Sums of this update over all processes."""
        batches = [batch for batch in batches if batch.num_target_tokens]  # without dummy batches
        mine = Sums(
            loss=sum(each.loss for each in losses),
            loss_units=sum(len(batch) if self._by_sentence else batch.num_target_tokens for batch in batches),
            nll=sum(each.nll for each in losses),
            sentences=sum(len(batch) for batch in batches),
            source_tokens=sum(batch.num_source_tokens for batch in batches),
            target_tokens=sum(batch.num_target_tokens for batch in batches),
            cells=sum(batch.num_real_cells for batch in batches),
            padded_cells=sum(batch.num_cells for batch in batches),
            splits=splits,
            interrupted=self._interrupted,
        )
        return Sums(*sum_numbers(list(astuple(mine)), self.fabric.device))

    def _update(self, rate: float, step: int) -> float:
        """Clip the summed gradient and update the weights; return the gradient's norm before clipping.

        If the gradient is not finite, the weights are not updated; in float16, this adjusts the loss scale.
        """
        self._scaler.unscale_(self.optimizer)
        norm = self._gradients.norm()
        if self.config.clip_norm is not None and math.isfinite(norm) and norm > self.config.clip_norm:
            self._gradients.scale(self.config.clip_norm / norm)
        set_rate(self.optimizer, rate)
        if math.isfinite(norm) or self._scaler.is_enabled():
            self._step_optimizer(step)
        self._scaler.update()
        hopeless = self._scaler.get_scale() < SMALLEST_SCALE if self._scaler.is_enabled() else not math.isfinite(norm)
        if hopeless and self.config.non_finite == "stop":
            raise ModelError(
                f"The gradient of update {step} is not finite, though its loss is. Lower the learning rate or "
                "training.clip_norm, or set training.non_finite to skip."
            )
        return norm

    def _step_optimizer(self, step: int) -> None:
        """Update the weights."""
        config = self.config.optimizer
        if isinstance(config, OptimizerConfig):
            _seed_torch(self.seed, step)
        self._scaler.step(self.optimizer)
        if isinstance(config, OptimizerConfig):
            check_places(config, self.model, self._places)
            if step == 1:
                state_of_optimizer(config, self.optimizer, self.model, lambda tensor: tensor)  # or it is an error now

    def _name_non_finite(self, batches: list[Batch], losses: list[Loss], step: int) -> str:
        pairs = zip(batches, losses, strict=True)
        mine = [self._name(batch) for batch, each in pairs if not math.isfinite(each.loss)]
        names = [name for process in gather(mine) for name in process]
        return (
            f"The loss of update {step} is not finite, in {'; '.join(names)}. Look at these sentences; lower the "
            "learning rate, use another precision, or set training.non_finite to skip."
        )

    def _name_too_large(self, batch: Batch) -> str:
        return (
            f"One sentence pair does not fit in memory: {self._name(batch)}, {batch.source.shape[1]} source and "
            f"{batch.target_input.shape[1]} target tokens, {batch.num_cells} cells. Filter long sentences "
            "(data.filters), use activation checkpointing or a smaller model."
        )

    def _name_unsplit(self, batch: Batch) -> str:
        return (
            f"A batch does not fit in memory: {self._name(batch)}. With training.sharded it cannot be split, as all "
            "processes must have equally many. Lower batches.max_cells or batches.max_tokens."
        )

    def _name(self, batch: Batch) -> str:
        """Files and lines of a batch's sentences, for messages."""
        origins = [self.store.origin(index) for index in batch.indices[:NAMED_SENTENCES]]
        more = len(batch) - len(origins)
        return f"the batch of {', '.join([*origins, *([f'and {more} more'] if more else [])])}"

    def modules(self) -> set[str]:
        """Names of the modules that define the optimiser and the decay of the rate."""
        parts = (find_optimizer(self.config.optimizer), type(self.optimizer), find_decay(self.config.schedule.decay))
        return {part.__module__ for part in parts if isinstance(getattr(part, "__module__", None), str)}

    def whole_model(self) -> TranslationModel:
        """The model with all weights in this process; if it is sharded, a copy, and all processes must call this."""
        return self.model if self._shards is None else self._shards.whole()

    def mine(self, tensor: Tensor) -> Tensor:
        """The part of a state's tensor that this process keeps."""
        return tensor if self._shards is None else self._shards.mine(tensor)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next update depends on: tensors by name, and plain values.

        If the model is sharded, all processes must call this together, and only the first one gets the tensors.
        """
        whole = (lambda tensor: tensor) if self._shards is None else self._shards.whole_in_first
        tensors = {f"{IN_STATE}{name}": whole(tensor) for name, tensor in self.model.state_dict().items()}
        more, values = state_of_optimizer(self.config.optimizer, self.optimizer, self.model, whole)
        return tensors | more, {"position": asdict(self.position), **values, "scaler": self._scaler.state_dict()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the weights; tensors are the parts that `mine` keeps."""
        self.model.load_state_dict(weights)

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore a saved state; tensors are the parts that `mine` keeps."""
        self.load_weights(weights_of_state(tensors))
        load_optimizer_state(self.config.optimizer, self.optimizer, self.model, tensors, values)
        if values["scaler"]:
            self._scaler.load_state_dict(values["scaler"])
        self.position = Position(**values["position"])


def _divided(model: TranslationModel, sharded: bool) -> tuple[ShardedModel | None, Gradients]:
    """The sharded model, or None if every process keeps all weights, and the gradients."""
    if not sharded or num_processes() == 1:
        return None, FlatGradients(model)
    from jointnmt.training.sharding import ShardedGradients, ShardedModel  # takes a second

    return ShardedModel(model), ShardedGradients(model)


def _seed_torch(seed: int, *key: int) -> None:
    """Seed torch's generator for a batch (update, first pair) or for an optimiser (update), alike in all processes."""
    torch.manual_seed(int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)[0]))
