"""What binds the parts of a trained model to each other: its weights, its configuration and its segmentation.

A file of weights carries, among its values and so under its checksum, what of the configuration decides the model's
output, and a hash of the segmentation. Weights with another configuration or other pieces would translate, and
translate wrongly.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from jointnmt.config import Config, differences, in_words
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.models import ModelConfig
from jointnmt.search import SearchConfig
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import hash_files

logger = logging.getLogger(__name__)

PARTS = "parts"
"""Of the values of a checkpoint."""


class DecidingConfig(Config):
    """What of an experiment's configuration decides the output of its model."""

    source_language: str
    target_language: str
    segmentation: SegmentationConfig
    model: ModelConfig
    search: SearchConfig


@dataclass(frozen=True)
class Parts:
    """The configuration and the segmentation that weights belong to."""

    configuration: DecidingConfig
    segmentation: str
    """Hash of its files."""

    @classmethod
    def of(cls, experiment: Experiment, segmentation: Path) -> Self:
        """Of an experiment and the folder of its segmentation.

        Raises:
            ModelError: if a file of the segmentation is missing.
        """
        configuration = DecidingConfig(
            source_language=experiment.data.source_language,
            target_language=experiment.data.target_language,
            segmentation=experiment.segmentation,
            model=experiment.model,
            search=experiment.search,
        )
        return cls(configuration, hash_files(segmentation))

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {"configuration": self.configuration.plain(), "segmentation": self.segmentation}

    def check(self, values: Mapping[str, Any], weights: Path) -> None:
        """Refuse weights that belong to other parts; older weights, which do not tell, are warned of.

        Args:
            values: of the checkpoint.
            weights: its path. Messages name the other parts as they lie in its RUN directory.

        Raises:
            ModelError: naming the part.
        """
        if PARTS not in values:
            _warn_of_unbound(weights)
            return
        stored = values[PARTS]
        try:
            configuration = DecidingConfig.parse(stored["configuration"], origin=str(weights))
            segmentation = str(stored["segmentation"])
        except (ConfigurationError, TypeError, KeyError, ValueError) as error:
            raise ModelError(
                f"{weights}: tells nothing that this version understands of the configuration it belongs to ({error}). "
                "Update jointnmt, or save the model again."
            ) from error
        if changed := differences(configuration.plain(), self.configuration.plain()):
            raise ModelError(
                f"experiment.yaml is not the configuration that {weights} was trained with: {in_words(changed)}. "
                "The model would translate otherwise than it was trained to. Bring the old file back; settings of a "
                "translation are options of `translate`, and of a server `--set search.KEY=VALUE`."
            )
        if segmentation != self.segmentation:
            raise ModelError(
                f"segmentation/ is not the segmentation that {weights} was trained with: its files have another "
                "content. Bring the old files back, or copy the whole model again."
            )


def is_bound(values: Mapping[str, Any]) -> bool:
    """Whether a checkpoint with these values tells what it belongs to."""
    return PARTS in values


@cache
def _warn_of_unbound(weights: Path) -> None:
    """Once for each file."""
    logger.warning(
        "%s: does not tell which configuration and segmentation it belongs to, as older versions wrote it: whether "
        "those beside it are the right ones was not checked. `save_pretrained` writes a model that tells.",
        weights,
    )
