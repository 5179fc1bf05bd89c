"""The whole configuration of an experiment: of each part, and of training and validation.

The settings of training are here, not in `training`, so that a trained model can be loaded without training code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PlainValidator, PrivateAttr, SerializeAsAny, model_validator

from jointnmt.config import Config, Settings, differences_by_key
from jointnmt.data.corpus import DataConfig
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.errors import ConfigurationError
from jointnmt.models import ModelConfig
from jointnmt.recipe import ADAMW, LANGUAGES, OF_MODEL, origin_of, read_recipe, with_trained
from jointnmt.search import SearchConfig
from jointnmt.text.config import SegmentationConfig

MAY_DIFFER = re.compile(r"model\.(\w*dropout|max_length|activation_checkpointing)")
"""Keys of a model that weights do not depend on: a training that starts from the weights may change them."""


class ScheduleConfig(Config):
    """Linear warm-up, then decay with the inverse square root of the step, or to zero: linearly, or along a cosine.

    Other packages and scripts may provide further decays (`training.schedule`).
    """

    peak_rate: float = Field(1e-3, gt=0, le=1000, description="learning rate at the end of the warm-up")
    initial_rate: float = Field(1e-7, ge=0, le=1000, description="learning rate before the first update")
    warmup_steps: int = Field(4000, ge=0, le=10**12, description="updates of linear warm-up; 0: start at the peak")
    zero_at: int | None = Field(
        None, ge=1, le=10**12, description="decay to zero at this update, the last one; null: inverse square root"
    )
    decay: str = Field(
        "linear",
        min_length=1,
        description="decay to zero_at: linear, cosine (half a period); or the name of one of another package",
    )

    @model_validator(mode="after")
    def _rates_rise(self) -> Self:
        if self.initial_rate > self.peak_rate:
            raise ValueError(f"initial_rate {self.initial_rate} is above peak_rate {self.peak_rate}")
        if self.zero_at is not None and self.zero_at <= self.warmup_steps:
            raise ValueError(f"zero_at {self.zero_at} is not after warmup_steps {self.warmup_steps}")
        if self.decay == "cosine" and self.zero_at is None:
            raise ValueError("decay cosine needs zero_at, the update at which the rate is zero")
        return self


class AdamConfig(Config):
    """Adam with decoupled weight decay (AdamW)."""

    name: Literal["adamw"] = Field(
        "adamw", description="optimiser; or the name of one of another package, whose settings are the other keys"
    )
    betas: tuple[float, float] = Field((0.9, 0.997), description="decay of the first and second moment estimates")
    epsilon: float = Field(1e-8, gt=0, le=1, description="term added to the denominator")
    weight_decay: float = Field(0.0, ge=0, le=1000, description="decoupled weight decay of all parameters")

    @model_validator(mode="after")
    def _betas_below_one(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} must be in [0, 1)")
        return self


class OptimizerConfig(Config):
    """An optimiser of another package or a script, with its settings as further keys, which a training checks.

    To translate, the package is not needed.
    """

    model_config = ConfigDict(extra="allow")

    name: str = Field(min_length=1, description="name of an optimiser of another package")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings beside the name."""
        return dict(self.model_extra or {})


def _of_its_name(values: Any) -> AdamConfig | OptimizerConfig:
    """`values` as the settings of the optimiser that they name."""
    if isinstance(values, AdamConfig | OptimizerConfig):
        return values
    if isinstance(values, Mapping) and values.get("name", ADAMW) != ADAMW:
        return OptimizerConfig.model_validate(values)
    return AdamConfig.model_validate(values)


class TrainingConfig(Config):
    """Settings of training: loss, optimiser, precision, devices, length, checkpoints."""

    start: Path | None = Field(
        None,
        alias="from",
        description="trained model to start from (RUN or shared folder): weights, model and segmentation; null: none",
    )
    max_updates: int | None = Field(None, ge=1, le=10**12, description="stop after so many updates")
    max_epochs: int | None = Field(None, ge=1, le=10**12, description="stop after so many epochs")
    loss_mean: Literal["tokens", "sentences"] | None = Field(
        None,
        description="loss is the mean over tokens, or over sentences' means; null: tokens (sentences if "
        "emelin_compatible)",
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability mass spread evenly over the vocabulary")
    r_drop: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="weight of R-Drop, which penalises the KL divergence between two dropout passes; 0: off",
    )
    bpe_dropout: float = Field(
        0.0, ge=0, lt=1, description="rate of skipped BPE merges: training text is segmented again in each epoch"
    )
    optimizer: Annotated[SerializeAsAny[AdamConfig | OptimizerConfig], PlainValidator(_of_its_name)] = Field(
        AdamConfig(), description="AdamW, or an optimiser of another package"
    )
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="learning rate")
    clip_norm: float | None = Field(25.0, gt=0, le=10**12, description="largest gradient norm; null: no clipping")
    non_finite: Literal["stop", "skip"] = Field(
        "stop", description="if loss or gradient is not finite: stop, or skip the update"
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "float32", description="precision of the forward pass; weights stay in float32; auto: the fastest one measured"
    )
    accelerator: Literal["auto", "cpu", "gpu"] = Field("auto", description="device type")
    devices: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = Field(
        "auto", description="devices (CPU: processes) per machine; set by torchrun"
    )
    nodes: int = Field(1, ge=1, le=10_000, description="machines; set by torchrun")
    sharded: bool = Field(
        False,
        description="shard weights, gradients and optimiser state (FSDP2): less memory, more communication",
    )
    process_timeout: int = Field(
        1800, ge=1, le=10**6, description="seconds after which a process that does not answer is taken to be lost"
    )
    compile: bool = Field(False, description="compile the model with torch.compile (slower on a CPU)")
    checkpoint_every: int = Field(500, ge=1, le=10**12, description="updates between saves of the training state")
    keep_best: int = Field(5, ge=1, le=10_000, description="number of best checkpoints kept")
    keep_last: int = Field(1, ge=1, le=10_000, description="number of latest validated checkpoints also kept")
    average_best: int = Field(
        5,
        ge=1,
        le=10_000,
        description=(
            "number of best checkpoints averaged at the end, unless the best one scores higher; 1: no averaging"
        ),
    )
    log_every: int = Field(
        50, ge=1, le=10**12, description="updates between log lines; also one at each validation and at the end"
    )
    tensorboard: bool = Field(True, description="also write TensorBoard event files")

    @model_validator(mode="after")
    def _average_what_is_kept(self) -> Self:
        if self.average_best > self.keep_best:
            raise ValueError(f"average_best {self.average_best} is above keep_best {self.keep_best}")
        return self

    @model_validator(mode="after")
    def _shard_what_can_be(self) -> Self:
        if self.sharded and (self.compile or self.precision == "float16"):
            raise ValueError("sharded true cannot be combined with compile true or precision float16")
        if self.sharded and isinstance(self.optimizer, OptimizerConfig):
            raise ValueError(f"sharded true needs optimizer.name {ADAMW}: the state of no other one is divided")
        return self

    def planned_end(self, of_epochs: int | None = None) -> int | None:
        """The last update of a training; None if only patience ends it.

        Args:
            of_epochs: the last update of `max_epochs`, if these are limited and it is known.
        """
        ends = (self.max_updates, of_epochs, self.schedule.zero_at)
        return min((end for end in ends if end is not None), default=None)


class ValidationConfig(Config):
    """Settings of validation: frequency, the metric that chooses checkpoints, and early stopping."""

    every_updates: int | None = Field(None, ge=1, le=10**12, description="updates between validations; null: by epochs")
    every_epochs: int = Field(1, ge=1, le=10**12, description="epochs between validations, if every_updates is null")
    metric: Literal["perplexity", "bleu", "chrf"] = Field(
        "perplexity",
        description="metric for best checkpoints and early stopping; models below 2 BLEU, or 15 chrF, are compared by "
        "perplexity",
    )
    patience: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="stop after so many measurements of the metric without improvement, counted after the warm-up",
    )
    bleu_every: int = Field(
        1,
        ge=0,
        le=10**9,
        description="validations between translations of the text, which are scored by BLEU and, if it is the metric, "
        "chrF; 0: never",
    )
    bleu_sentences: int | None = Field(
        None, ge=1, le=10**9, description="sentences translated for BLEU and chrF, evenly spread; null: all"
    )


class Experiment(Config):
    """A resolved recipe: everything that determines a training run."""

    name: str = Field(min_length=1, description="name of the run in reports and logs")
    seed: int = Field(1, ge=0, lt=2**63, description="seed of initial weights, data order and dropout")
    data: DataConfig = Field(description="corpora and filters")
    segmentation: SegmentationConfig = Field(SegmentationConfig(), description="segmentation into pieces")
    model: ModelConfig = Field(description="family and sizes")
    batches: BatchConfig = Field(BatchConfig(), description="sizes of batches and updates")
    training: TrainingConfig = Field(description="optimiser, schedule, precision, length")
    validation: ValidationConfig = Field(
        ValidationConfig(), description="frequency, early stopping, choice of checkpoints"
    )
    search: SearchConfig = Field(
        SearchConfig(), description="beam search in validation, and the default for translation"
    )
    _listed_tags: tuple[str, ...] = PrivateAttr(())
    """The tags of the segmentation without those that texts add."""

    @model_validator(mode="after")
    def _tied_embeddings_need_a_joint_vocabulary(self) -> Self:
        if self.model.embeddings == "all" and not self.segmentation.shared:
            raise ValueError(
                "model.embeddings 'all' needs segmentation.joint true: one embedding table needs one vocabulary"
            )
        return self

    @model_validator(mode="after")
    def _dropped_merges_are_free(self) -> Self:
        if self.training.bpe_dropout and self.segmentation.kind != "bpe":
            raise ValueError(
                f"training.bpe_dropout needs segmentation.kind bpe: the pieces of {self.segmentation.kind} are not "
                "made by merges"
            )
        if self.training.bpe_dropout and self.segmentation.counts_pieces:
            raise ValueError(
                "training.bpe_dropout needs segmentation.vocabulary_threshold 0 and joint true or false: with skipped "
                "merges, text has pieces that are missing in its side's vocabulary"
            )
        return self

    @model_validator(mode="after")
    def _passes_differ(self) -> Self:
        if self.training.r_drop and not any(self.model.dropout_rates().values()):
            raise ValueError(
                "training.r_drop needs dropout, such as model.dropout: without it, both passes through the model are "
                "equal, and take twice the time"
            )
        return self

    @model_validator(mode="after")
    def _resolve_tags(self) -> Self:
        """Add the tags of texts to those of the segmentation."""
        self._listed_tags = self.segmentation.tags
        used = [text.tag for text in (*self.data.train, *self.data.validation) if text.tag is not None]
        if set(used) - set(self._listed_tags):
            tags = tuple(dict.fromkeys((*self._listed_tags, *used)))
            object.__setattr__(self, "segmentation", self.segmentation.model_copy(update={"tags": tags}))  # frozen
        return self

    @model_validator(mode="after")
    def _resolve_loss_mean(self) -> Self:
        """Replace `training.loss_mean` null with the model's default, which does not count as given."""
        if self.training.loss_mean is None:
            resolved = self.training.model_copy(update={"loss_mean": self.model.default_loss_mean})
            resolved.model_fields_set.discard("loss_mean")
            object.__setattr__(self, "training", resolved)  # frozen
        return self

    @classmethod
    def load(cls, recipe: Path | Mapping[str, Any], settings: Settings = ()) -> Self:
        """Read a recipe and what it extends, apply settings and validate the result.

        Args:
            recipe: a recipe file, or the values of one in the working directory.
            settings: see `read_recipe`.

        Raises:
            ConfigurationError: naming each wrong key; or as in `read_recipe`.
        """
        experiment = cls.parse(read_recipe(recipe, settings), origin=origin_of(recipe))
        if experiment.training.start is not None:
            _check_start(experiment, with_trained(experiment.plain(), {}), origin_of(recipe))
        return experiment

    def given(self) -> dict[str, Any]:
        """See `Config.given`; with the family, for which its class may stand, and without tags that texts add."""
        values = super().given()
        values["model"]["family"] = self.model.family
        if "segmentation" in values:
            values["segmentation"]["tags"] = [*self._listed_tags]
        return values

    def in_precision(self, precision: str) -> Self:
        """A copy with another precision, such as the one chosen for `auto`."""
        return self.model_copy(update={"training": self.training.model_copy(update={"precision": precision})})


class _Trained(Config):
    """Settings taken from the model that a training starts from."""

    model: ModelConfig
    segmentation: SegmentationConfig = SegmentationConfig()


def _check_start(experiment: Experiment, trained: dict[str, Any], origin: str) -> None:
    """Check that segmentation and sizes are those of `trained`, the values of the model to start from.

    Raises:
        ConfigurationError: naming the keys that differ.
    """
    new = {part: experiment.plain()[part] for part in (*OF_MODEL, "data")}
    # Validated separately: together with this training, its loss and tags would have to fit, too.
    of_model = {part: trained[part] for part in OF_MODEL if part in trained}
    old = {**_Trained.parse(of_model, origin=origin).plain(), "data": trained["data"]}
    for each in (old, new):
        each["data"] = {key: each["data"][key] for key in LANGUAGES}
        each["segmentation"]["tags"] = ", ".join(each["segmentation"]["tags"]) or "none"
    changed = differences_by_key(old, new)
    if "segmentation.tags" in changed:
        changed["segmentation.tags"] += " (those of data.train[].tag are included)"
    if wrong := [line for key, line in changed.items() if not MAY_DIFFER.fullmatch(key)]:
        raise ConfigurationError(
            f"{origin}: does not fit the model of training.from, {experiment.training.start}: {'; '.join(wrong)}. "
            "Leave these keys out: they come from the model."
        )
