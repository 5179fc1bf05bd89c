"""The model that a training begins with."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from jointnmt.experiment import Experiment
from jointnmt.models import TranslationModel, build_model
from jointnmt.runs import checkpoint
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.loading import check_outline, load_run
from jointnmt.text.segmentation import Segmentation

logger = logging.getLogger(__name__)


def new_model(experiment: Experiment, segmentation: Segmentation) -> TranslationModel:
    """A model with the initial weights of the experiment's seed."""
    torch.manual_seed(experiment.seed)
    return build_model(experiment.model, segmentation.source.vocabulary_size, segmentation.target.vocabulary_size)


def load_start(model: TranslationModel, start: Path) -> None:
    """Give a model the weights of the trained one that it begins with.

    Raises:
        ModelError: if that is incomplete, or of another size.
    """
    trained, weights = load_run(start, device="cpu")[0], RunDirectory(start).model
    check_outline(model, checkpoint.read_outline(weights), weights)
    model.load_state_dict(trained.state_dict())
    logger.info("the weights are those of %s", start)
