"""Averaging the weights of several checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.runs import checkpoint
from jointnmt.runs.contents import is_state, steps_of
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.loading import read_experiment
from jointnmt.runs.parts import PARTS, Parts, is_bound
from jointnmt.runs.provenance import TRAINING, check_provenance
from jointnmt.runs.selection import Selection
from jointnmt.runs.weights import read_weights


def average_checkpoints(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean weights of several checkpoints, summed in float64.

    Raises:
        ModelError: if a checkpoint is missing or damaged, or names or shapes of weights differ.
    """
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for path in paths:
        _check_name(path)
        weights = read_weights(path)
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        if count and shapes != {name: tensor.shape for name, tensor in total.items()}:
            raise ModelError(f"{path}: its weights differ in name or shape from those of the checkpoints before it.")
        for name, tensor in weights.items():
            kinds[name] = tensor.dtype
            total[name] = total[name] + tensor.double() if count else tensor.double()
        count += 1
    if not count:
        raise ModelError("There is no checkpoint to average: none has been validated yet.")
    return {name: (tensor / count).to(kinds[name]) for name, tensor in total.items()}


def _check_name(path: Path) -> None:
    """Refuse a checkpoint of a validated step that has the name of another.

    Raises:
        ModelError: if its name gives another step than its content.
    """
    named = re.fullmatch(r"step-(\d+)\.safetensors", path.name)
    values = checkpoint.read_values(path)
    steps = steps_of(values)
    if named and not is_state(values) and steps and steps != [int(named[1])]:
        raise ModelError(f"{path}: holds the weights after update {steps}: it has another checkpoint's name.")


def average_into(out: Path, paths: Sequence[Path]) -> None:
    """Write the average of several checkpoints as a weights file for translation.

    Raises:
        ModelError: as in `average_checkpoints`, and if configurations, segmentations or trainings differ.
    """
    weights = average_checkpoints(paths)
    found = [checkpoint.read_values(path) for path in paths]
    bound = [values[PARTS] for values in found if is_bound(values)]
    trainings = [values[TRAINING] for values in found if values.get(TRAINING)]
    for path, values in zip(paths, found, strict=True):
        if bound and is_bound(values) and values[PARTS] != bound[0]:
            raise ModelError(
                f"{path}: belongs to another configuration or segmentation than the checkpoints before it. Average "
                "those of one training."
            )
        check_provenance(values, trainings[0] if trainings else {}, path)
    steps = [step for values in found for step in steps_of(values)]
    out.parent.mkdir(parents=True, exist_ok=True)
    parts = {PARTS: bound[0]} if len(bound) == len(found) else {}
    training = {TRAINING: trainings[0]} if len(trainings) == len(found) else {}
    checkpoint.write(out, weights, {"steps": steps, "candidates": [], **parts, **training})  # no training chose it


def choose_checkpoints(
    run: Path, best: int | None = None, last: int | None = None, given: Sequence[Path] | None = None
) -> list[Path]:
    """Paths of checkpoints of a run: the `best`, best first; the `last` kept ones, oldest first; or those `given`.

    Raises:
        ConfigurationError: if one is given twice, or two have the weights after the same update.
        ModelError: if there is no run, or it keeps too few, or a given one is of another model.
    """
    directory = RunDirectory(run)
    if not directory.checkpoints.is_dir():
        raise ModelError(
            f"{run}: there is no run here ({directory.checkpoints.name} is missing). Check the path: it should be the "
            "directory that training wrote, jointnmt train RECIPE --out RUN."
        )
    if given:
        _check_given(run, given)
        return list(given)
    if best is not None:
        saved = directory.states.read()
        steps = Selection.from_plain(saved.values["run"]["selection"]).steps[:best] if saved else ()
        paths = [directory.scored(step) for step in steps]
    else:
        paths = sorted(directory.checkpoints.glob("step-*.safetensors"))[-(last or 0) :]
    wanted = best or last or 0
    if len(paths) < wanted:
        raise ModelError(
            f"{run}: has fewer such checkpoints than {wanted}: {len(paths)}. Ask for no more; training.keep_best and "
            "training.keep_last set how many a training keeps."
        )
    return paths


def _check_given(run: Path, given: Sequence[Path]) -> None:
    files = [path.resolve() for path in given]
    if repeated := [path for number, path in enumerate(given) if files[number] in files[:number]]:
        raise ConfigurationError(f"{repeated[0]}: is given twice. Give each checkpoint once.")
    found = {path: checkpoint.read_values(path) for path in given}
    single: dict[tuple[str, Any], Path] = {}
    for path, values in found.items():
        steps, training = steps_of(values), json.dumps(values.get(TRAINING), sort_keys=True)
        if len(steps) == 1 and (same := single.setdefault((training, steps[0]), path)) != path:
            raise ConfigurationError(
                f"{path}: has the weights after update {steps[0]}, as has {same}. Give only one of them."
            )
    bound = {path: values for path, values in found.items() if is_bound(values)}
    if not bound:
        return
    parts = Parts.of(read_experiment(run), RunDirectory(run).segmentation)
    for path, values in bound.items():
        try:
            parts.check(values, path)
        except ModelError as error:
            raise ModelError(
                f"{path}: belongs to another configuration or segmentation than {run}. Average checkpoints of one "
                "training."
            ) from error
