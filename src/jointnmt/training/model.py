"""The initial model of a training."""

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
    """A model with initial weights from the experiment's seed."""
    torch.manual_seed(experiment.seed)
    return build_model(experiment.model, segmentation.source.vocabulary_size, segmentation.target.vocabulary_size)


def load_start(model: TranslationModel, start: Path) -> None:
    """Load the weights of the trained model `start` into `model`.

    Raises:
        ModelError: if the trained model is incomplete, or has other sizes.
    """
    trained, weights = load_run(start, device="cpu")[0], RunDirectory(start).model
    check_outline(model, checkpoint.read_outline(weights), weights)
    model.load_state_dict(trained.state_dict())
    logger.info("starting with the weights of %s", start)
