"""Consistency of the parts of a trained model: weights, configuration and segmentation.

The values of a file of weights, and so its checksum, include the settings that determine the model's output, and a hash
of the segmentation. With another configuration or other pieces, weights would translate without an error, but wrongly.
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
"""Key in the values of a checkpoint."""


class DecidingConfig(Config):
    """The settings of an experiment that determine the output of its model."""

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
        """The parts of an experiment and the folder of its segmentation.

        Raises:
            ModelError: if a file of the segmentation is missing.
        """
        configuration = DecidingConfig(
            source_language=experiment.data.source_language,
            target_language=experiment.data.target_language,
            segmentation=experiment.segmentation.without_files(),
            model=experiment.model,
            search=experiment.search,
        )
        return cls(configuration, hash_files(segmentation))

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return {"configuration": self.configuration.plain(), "segmentation": self.segmentation}

    def check(self, values: Mapping[str, Any], weights: Path) -> None:
        """Refuse weights that belong to other parts; older weights, which do not state theirs, give a warning.

        Args:
            values: values of the checkpoint.
            weights: path of the checkpoint. Messages name the other parts as in its RUN directory.

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
                f"{weights}: states its configuration in a form that this version does not understand ({error}). "
                "Update jointnmt, or save the model again."
            ) from error
        if changed := differences(configuration.plain(), self.configuration.plain()):
            raise ModelError(
                f"experiment.yaml is not the configuration that {weights} was trained with: {in_words(changed)}. "
                "The model would translate differently. Restore the old file; to change the search, use the options "
                "of `translate`, and for a server `--set search.KEY=VALUE`."
            )
        if segmentation != self.segmentation:
            raise ModelError(
                f"segmentation/ is not the segmentation that {weights} was trained with: its files have other "
                "content. Restore the old files, or copy the whole model again."
            )


def is_bound(values: Mapping[str, Any]) -> bool:
    """Whether a checkpoint with these values states its configuration and segmentation."""
    return PARTS in values


@cache
def _warn_of_unbound(weights: Path) -> None:
    """Warn once for each file."""
    logger.warning(
        "%s: does not state its configuration and segmentation, as it was written by an older version, so those beside "
        "it were not checked. `save_pretrained` writes a model that states them.",
        weights,
    )
