"""An experiment's whole configuration, put together from the configuration of each part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from jointnmt.config import Config, override, read_recipe
from jointnmt.data.batches import BatchConfig
from jointnmt.data.corpus import DataConfig
from jointnmt.models import ModelConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.search import SearchConfig
from jointnmt.text.segmentation import SegmentationConfig
from jointnmt.training.settings import TrainingConfig, ValidationConfig


class Experiment(Config):
    """Everything that decides what a training run does: a recipe, resolved."""

    name: str = Field(min_length=1, description="what reports and logs call the run")
    seed: int = Field(1, ge=0, lt=2**63, description="of initial weights, order and dropout")
    data: DataConfig = Field(description="corpora and filters")
    segmentation: SegmentationConfig = Field(SegmentationConfig(), description="text to pieces")
    model: ModelConfig = Field(description="family and sizes")
    batches: BatchConfig = Field(BatchConfig(), description="what is computed at once, and what an update sums up")
    training: TrainingConfig = Field(description="optimiser, schedule, precision, when to end")
    validation: ValidationConfig = Field(
        ValidationConfig(), description="measuring, stopping early, keeping checkpoints"
    )
    search: SearchConfig = Field(SearchConfig(), description="beam search, in validation and by default in translation")

    @model_validator(mode="after")
    def _tied_tables_need_a_joint_vocabulary(self) -> Self:
        if self.model.embeddings == "all" and not self.segmentation.joint:
            raise ValueError("model.embeddings 'all' needs segmentation.joint true: one table, one vocabulary")
        return self

    @model_validator(mode="after")
    def _emelin_models_average_over_sentences(self) -> Self:
        """Say what `training.loss_mean` null stands for."""
        if self.training.loss_mean is None:
            of_emelin = isinstance(self.model, TransformerConfig) and self.model.emelin_compatible
            resolved = self.training.model_copy(update={"loss_mean": "sentences" if of_emelin else "tokens"})
            object.__setattr__(self, "training", resolved)  # frozen for others
        return self

    @classmethod
    def load(cls, path: Path, settings: Sequence[str] = ()) -> Self:
        """Read a recipe and what it extends, apply `key.path=value` settings and validate the result.

        Raises:
            ConfigurationError: naming each wrong key.
        """
        return cls.parse(override(read_recipe(path), settings), origin=str(path))
