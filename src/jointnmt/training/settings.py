"""How a model is trained, as configuration."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from jointnmt.config import Config
from jointnmt.training.schedule import ScheduleConfig


class AdamConfig(Config):
    """Adam with decoupled weight decay (AdamW)."""

    betas: tuple[float, float] = Field((0.9, 0.997), description="decay of the first and the second moment")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.0, ge=0, description="decoupled decay of all parameters, times the learning rate")

    @model_validator(mode="after")
    def _betas_below_one(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} must lie in [0, 1)")
        return self


class TrainingConfig(Config):
    """Loss, optimiser, precision, devices, when to end, and what is kept."""

    max_updates: int | None = Field(None, ge=1, description="stop after so many updates")
    max_epochs: int | None = Field(None, ge=1, description="stop after so many epochs")
    loss_mean: Literal["tokens", "sentences"] | None = Field(
        None,
        description="over tokens, or over each sentence's mean; null: tokens, sentences if emelin_compatible",
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability spread evenly over the vocabulary")
    optimizer: AdamConfig = Field(AdamConfig(), description="Adam's settings")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="the learning rate of each update")
    clip_norm: float | None = Field(25.0, gt=0, description="longest gradient of an update; null: no clipping")
    non_finite: Literal["stop", "skip"] = Field("stop", description="on a loss that is not finite: stop, or skip it")
    precision: Literal["float32", "bfloat16", "float16"] = Field("float32", description="of the forward pass")
    accelerator: Literal["auto", "cpu", "gpu"] = Field("auto", description="kind of device")
    devices: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="devices (CPU: processes) a machine; set by torchrun"
    )
    nodes: int = Field(1, ge=1, description="machines; set by torchrun")
    compile: bool = Field(False, description="compile the model with torch.compile; on a CPU that is slower")
    checkpoint_every: int = Field(500, ge=1, description="updates between saves of the last checkpoint")
    keep_best: int = Field(5, ge=1, description="how many of the best checkpoints are kept")
    keep_last: int = Field(1, ge=1, description="how many of the latest validated checkpoints are kept besides")
    average_best: int = Field(5, ge=1, description="average so many of the best at the end; 1: the best alone")
    log_every: int = Field(50, ge=1, description="updates between lines of the log")
    tensorboard: bool = Field(True, description="also write TensorBoard event files")

    @model_validator(mode="after")
    def _average_what_is_kept(self) -> Self:
        if self.average_best > self.keep_best:
            raise ValueError(f"average_best {self.average_best} is above keep_best {self.keep_best}")
        return self


class ValidationConfig(Config):
    """When to validate, by what to choose checkpoints, and when to stop early."""

    every_updates: int | None = Field(None, ge=1, description="validate every so many updates; null: every epoch")
    every_epochs: int = Field(1, ge=1, description="validate every so many epochs, where every_updates is null")
    metric: Literal["perplexity", "bleu"] = Field("perplexity", description="what decides best and early stopping")
    patience: int | None = Field(
        None, ge=1, description="stop when the metric was measured so often without getting better"
    )
    bleu_every: int = Field(1, ge=0, description="translate at every so many validations; 0: never")
    bleu_sentences: int | None = Field(None, ge=1, description="translate this many evenly spread sentences; null: all")
