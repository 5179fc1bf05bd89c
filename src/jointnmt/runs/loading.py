"""Loading a trained model from its RUN directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.models import ModelConfig, TranslationModel, build_model
from jointnmt.models.outline import outline_model
from jointnmt.runs import checkpoint
from jointnmt.runs.contents import is_state, stored_precision
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.parts import Parts
from jointnmt.runs.weights import read_weights, weights_of_state, with_tied
from jointnmt.shipped import ensemble_hint
from jointnmt.text.segmentation import Segmentation


def load_run(run: Path, device: str = "auto") -> tuple[TranslationModel, Segmentation, Experiment]:
    """The model of a RUN directory in evaluation mode on `device`, with its segmentation and configuration.

    Raises:
        ConfigurationError: if the device does not exist.
        MissingPackageError: if its family is one of a package that is not installed.
        ModelError: if a file of RUN is missing, damaged, or inconsistent with the others.
    """
    place, files = choose_device(device), RunDirectory(run)
    experiment, weights = read_experiment(run), files.model
    if not weights.is_file():
        raise ModelError(
            f"{weights}: is missing: no validation of this training has chosen weights yet. Resume the training, or "
            "create the file from its checkpoints by jointnmt average."
        )
    segmentation = Segmentation.load(files.segmentation)
    outline = checkpoint.read_outline(weights)
    Parts.of(experiment, files.segmentation).check(outline.values, weights)
    sizes = segmentation.source.vocabulary_size, segmentation.target.vocabulary_size
    check_outline(outline_model(experiment.model, *sizes), outline, weights)  # before anything is allocated
    with torch.random.fork_rng(devices=[]):  # initial weights are random, and overwritten
        model = build_model(experiment.model, *sizes)
    model.load_state_dict(read_weights(weights))
    return model.to(place).eval(), segmentation, experiment


def check_weights(model: TranslationModel, config: ModelConfig, segmentation: Segmentation) -> None:
    """Check that a model is one of its configuration: else it could be saved, but not loaded as it is.

    Raises:
        ModelError: if its class, or names or shapes of weights, differ.
    """
    outline = outline_model(config, segmentation.source.vocabulary_size, segmentation.target.vocabulary_size)
    of_config, of_model = (
        {name: tuple(tensor.shape) for name, tensor in each.state_dict().items()} for each in (outline, model)
    )
    if type(model) is not type(outline) or of_config != of_model:
        raise ModelError(
            f"This {type(model).__name__} is not the {config.family} of its configuration, so it could not be loaded "
            "again. Save the model inside it, or make it a family (CONTRIBUTING.md)."
        )


def read_experiment(run: Path) -> Experiment:
    """The configuration of a RUN directory.

    Raises:
        MissingPackageError: if its family is one of a package that is not installed.
        ModelError: if it is missing or damaged.
    """
    configuration = RunDirectory(run).experiment
    if not configuration.is_file():
        raise ModelError(
            f"{run}: there is no trained model here ({configuration.name} is missing). Check the path: it should be "
            f"the directory that training wrote, jointnmt train RECIPE --out RUN.{ensemble_hint(run)}"
        )
    try:
        return RunDirectory(run).read_experiment()
    except ConfigurationError as error:
        raise ModelError(f"{error} Restore the file from a backup, or train again.") from error


def check_outline(model: TranslationModel, outline: checkpoint.Outline, path: Path) -> None:
    """Refuse a file of weights at `path` that do not fit a model, which may be on the meta device.

    Raises:
        ModelError: if names or shapes differ from the model's, or a type from that of the file's stated precision.
    """
    given = weights_of_state(outline.tensors) if is_state(outline.values) else outline.tensors
    given = with_tied(given, outline.values, path)
    stored = stored_precision(outline.values)
    expected = {
        name: (getattr(torch, stored, None) if tensor.is_floating_point() else tensor.dtype, tuple(tensor.shape))
        for name, tensor in model.state_dict().items()
    }
    _require_equal({name: of[1] for name, of in expected.items()}, {name: of[1] for name, of in given.items()}, path)
    wrong = [f"{name} is {given[name][0]} instead of {of[0]}" for name, of in expected.items() if given[name] != of]
    if wrong:
        raise ModelError(
            f"{path}: holds tensors of another type than it states: {'; '.join(wrong[:3])}. Copy the file again, or "
            "train again."
        )


def _require_equal(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Refuse other names or shapes than expected.

    Raises:
        ModelError: naming the first ones.
    """
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
        why = str(error).splitlines()[0]
        why = "PyTorch has none of this name" if why.startswith("Expected one of") else why  # PyTorch lists two dozen
        why = "this PyTorch cannot compute on it" if isinstance(error, NotImplementedError) else why  # lists them, too
        raise ConfigurationError(
            f"The device {device!r} cannot be used here ({why}). Choose auto, cpu, or cuda where there is a GPU."
        ) from error
