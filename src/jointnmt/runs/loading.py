"""Loading a trained model from its RUN directory."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.models import TranslationModel, build_model
from jointnmt.runs.averaging import read_weights
from jointnmt.runs.directory import RunDirectory
from jointnmt.text.segmentation import Segmentation


def load_run(run: Path, device: str = "auto") -> tuple[TranslationModel, Segmentation, Experiment]:
    """The model of a RUN directory in evaluation mode on `device`, with its segmentation and configuration.

    Raises:
        ConfigurationError: if the device does not exist.
        ModelError: if a file of RUN is missing, damaged, or inconsistent with the others.
    """
    place, files = choose_device(device), RunDirectory(run)
    experiment, weights = read_experiment(run), files.model
    if not weights.is_file():
        raise ModelError(
            f"{weights}: is missing: no validation of this training has chosen weights yet. Resume the training, or "
            "make the file from its checkpoints with jointnmt average."
        )
    segmentation = Segmentation.load(files.segmentation)
    sizes = segmentation.source.vocabulary_size, segmentation.target.vocabulary_size
    with torch.random.fork_rng(devices=[]):  # initial weights are random, and overwritten
        model = build_model(experiment.model, *sizes)
    load_weights(model, read_weights(weights), weights)
    return model.to(place).eval(), segmentation, experiment


def read_experiment(run: Path) -> Experiment:
    """The configuration of a RUN directory.

    Raises:
        ModelError: if it is missing or damaged.
    """
    configuration = RunDirectory(run).experiment
    if not configuration.is_file():
        raise ModelError(
            f"{run}: there is no trained model here ({configuration.name} is missing). Check the path: it should be "
            "the directory that training wrote, jointnmt train RECIPE --out RUN."
        )
    try:
        return Experiment.load(configuration)
    except ConfigurationError as error:
        raise ModelError(f"{error} Restore the file from a backup, or train again.") from error


def load_weights(model: TranslationModel, weights: dict[str, Tensor], path: Path) -> None:
    """Load `weights`, read from `path`, into a model.

    Raises:
        ModelError: if names or shapes differ from the model's.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrong = [
        f"{name} is {given.get(name, 'missing')} instead of {expected.get(name, 'nothing')}"
        for name in sorted(expected.keys() | given.keys())
        if expected.get(name) != given.get(name)
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ModelError(
            f"{path}: does not hold the weights of the model that experiment.yaml and segmentation/ beside it "
            f"describe: {'; '.join(wrong[:3])}{more}. Use the files of one training, or train again."
        )
    model.load_state_dict(weights)


def choose_device(device: str) -> torch.device:
    """The device of this name; `auto` is a GPU if there is one.

    Raises:
        ConfigurationError: if there is no such device here.
    """
    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        place = torch.empty(0, device=name).device
        if place.type == "meta":
            raise RuntimeError("it holds no data")
        return place
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(
            f"The device {device!r} cannot be used here ({str(error).splitlines()[0]}). Choose auto, cpu, or cuda "
            "where there is a GPU."
        ) from error
