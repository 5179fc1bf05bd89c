"""Single-shot gradient-based scaling: from three trainings to a larger model (Li et al. 2020, Eqs. 7-11).

A model has a depth, l layers, and a width, w = F / E. It is trained as it is, with epsilon layers more, and with
epsilon times E hidden features more: the runs `base`, `depth` and `width`. The differences of their validation
cross-entropy are a gradient; one step along it, up to the wanted number of parameters, leads to the scaled model.

E is left alone, as in the paper. All depths of a model (PreNet and grid, encoder and decoder) grow by the same number
of layers.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jointnmt.config import Config, differences
from jointnmt.errors import ConfigurationError, DataError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.models import ModelConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.training import checkpoint
from jointnmt.training.directory import MAY_CHANGE, RunDirectory
from jointnmt.training.logs import whole_records
from jointnmt.training.loop import RunState
from jointnmt.training.processes import is_first

logger = logging.getLogger(__name__)

PROBES = ("base", "depth", "width")
"""The three runs, and the names of their directories."""

ENDS = ("training.max_epochs", "training.max_updates", "validation.patience")
"""Keys that decide how long a run is: cross-entropies compare only where they are equal."""

SHORTCUT_MATRICES = {"plain": 2, "fusion": 6}
"""How many E x E matrices the shortcuts of an attention layer add (Emelin et al. 2019, Eqs. 5-8 and 13-14)."""


SMALLEST_RATIO = 1.05
"""That is worth asking for."""


class ScalingError(ConfigurationError):
    """The measured gradient leads to no larger model: what was asked for, this recipe at this ratio, cannot be had."""


class Gradient(NamedTuple):
    """By how many nats of validation cross-entropy a token one unit makes the model *better* (Eq. 10).

    The paper climbs a performance L and measures it by cross-entropy, of which less is better: L is its negative.
    """

    depth: float
    """For a layer more of every stack."""
    width: float
    """For E hidden features more in every feed-forward block."""


class Step(NamedTuple):
    """The step from the model to the scaled one, before it is rounded."""

    alpha: float
    """How far along the gradient (Eq. 11)."""
    layers: float
    width: float


@dataclass(frozen=True)
class AttentionPlace:
    """One kind of attention layers, with the feed-forward blocks that follow them."""

    depth: int
    attention: int
    """E x E matrices of an attention layer."""
    blocks: int
    """Feed-forward blocks after it, of 2 w E^2 weights each: one, or none."""


@dataclass(frozen=True)
class StackSize:
    """P(l, w), the parameters of a model without embeddings, biases and norms, in units of E^2 (Eq. 8).

    Eq. 8 is P = 2 l (4 + 2w) of a Reformer-base. Here it is the sum over the places where a model attends, so that it
    holds for stacks of unequal depth, and for the Transformer, whose attention to the source has no feed-forward block.
    It is linear in l and in w, which is all that the closed form of Eq. 11 needs.
    """

    places: tuple[AttentionPlace, ...]

    @classmethod
    def of(cls, config: ModelConfig) -> StackSize:
        """Of a model of any family."""
        shortcuts = 0 if config.shortcuts is None else SHORTCUT_MATRICES[config.shortcuts.kind]
        return cls(
            tuple(
                AttentionPlace(depth, 4 + shortcuts * (place in config.shortcut_places), int(place != "cross"))
                for place, depth in config.attention_depths().items()
            )
        )

    def parameters(self, layers: float, width: float) -> float:
        """P with `layers` more in every stack, and width ratio `width`."""
        return sum((place.depth + layers) * (place.attention + 2 * place.blocks * width) for place in self.places)


def step_size(size: StackSize, width: float, gradient: Gradient, ratio: float) -> float:
    """How far to walk along the gradient until there are `ratio` times as many parameters (Eq. 11), in closed form.

    P is linear in both arguments, so that P(l + alpha L'_l, w + alpha L'_w) = P + b alpha + a alpha^2; the smallest
    positive alpha at which it is `ratio` P is the answer. It is written so that nothing cancels when `a` is small.

    Raises:
        ScalingError: if the gradient says that larger is worse, or no alpha meets the ratio.
    """
    if max(gradient) <= 0:
        raise ScalingError(
            f"Larger is worse here: validation cross-entropy falls by {gradient.depth:.5f} nats a layer and by "
            f"{gradient.width:.5f} nats a width of E (negative: it rises), so that the gradient leads to smaller "
            "models only. Train the runs for longer, or regularise them more (model.dropout), and scale again."
        )
    here, unit = size.parameters(0, width), size.parameters(1, width)
    wider, both = size.parameters(0, width + 1) - here, size.parameters(1, width + 1) - unit
    b = gradient.depth * (unit - here) + gradient.width * wider
    a = gradient.depth * gradient.width * (both - wider)
    wanted = (ratio - 1) * here
    discriminant = b * b + 4 * a * wanted
    if b <= 0 or discriminant < 0:
        most = 1 + b * b / (-4 * a * here) if b > 0 else 1.0
        instead = "" if most < SMALLEST_RATIO else ", or ask for a smaller ratio"
        raise ScalingError(
            f"The ratio {ratio:g} cannot be met: one side of the gradient is negative ({gradient.depth:.5f} nats a "
            f"layer, {gradient.width:.5f} nats a width of E), and along it a model has at most {most:.3f} times the "
            f"parameters. Train the runs for longer{instead}, and scale again."
        )
    return 2 * wanted / (b + math.sqrt(discriminant))


def round_half_up(number: float) -> int:
    """The nearest whole number; of two, the greater."""
    return math.floor(number + 0.5)


def width_unit(embed_dim: int) -> int:
    """Of what F is made a multiple: of what matrix products on GPUs like, and not coarser than a model can bear.

    From E = 256 on, E itself, as in the paper (6.27 E becomes 6 E); below, 64, and 8 where E is below 64: small models
    have small w, of which a whole E is too much. An odd E from 256 on (not a multiple of 64) has 64 as well.
    """
    if embed_dim >= 256 and embed_dim % 64 == 0:
        return embed_dim
    return 64 if embed_dim >= 64 else 8


def depths(config: ModelConfig) -> dict[str, int]:
    """The keys of a model that say how many layers it has, with their values.

    Raises:
        ConfigurationError: if there are none.
    """
    found = {key: getattr(config, key) for key in type(config).model_fields if key.endswith("_layers")}
    if not found or not config.attention_depths():
        raise ConfigurationError(f"The family {config.family} has no layers to add: it cannot be scaled in depth.")
    return found


def width_ratio(config: ModelConfig) -> float:
    """w = F / E."""
    return config.ffn_dim / config.embed_dim


def resized(experiment: Experiment, name: str, layers: int, ffn_dim: int) -> Experiment:
    """The experiment under another name, with `layers` more in every stack and another F.

    Raises:
        ConfigurationError: if the family cannot have these sizes.
    """
    values = experiment.plain()
    changed = {key: depth + layers for key, depth in depths(experiment.model).items()}
    model = {**values["model"], **changed, "ffn_dim": ffn_dim}
    return Experiment.parse({**values, "name": name, "model": model}, origin=name)


def probes(experiment: Experiment, epsilon: int, updates: int | None = None) -> dict[str, Experiment]:
    """The three experiments of Eq. 10: (l, w), (l + epsilon, w) and (l, w + epsilon).

    Args:
        experiment: to be scaled.
        epsilon: layers, and widths of E.
        updates: ends each of them, in the place of `training.max_updates`.

    Raises:
        ConfigurationError: if there is no validation text, or no depth.
    """
    if not experiment.data.validation:
        raise ConfigurationError(
            "data.validation names no text: scaling compares cross-entropies on validation text. Name one."
        )
    if updates is not None:
        training = experiment.training.model_copy(update={"max_updates": updates})
        experiment = experiment.model_copy(update={"training": training})
    name, ffn_dim = experiment.name, experiment.model.ffn_dim
    wider = ffn_dim + epsilon * experiment.model.embed_dim
    return {
        "base": resized(experiment, name, 0, ffn_dim),
        "depth": resized(experiment, f"{name}-depth", epsilon, ffn_dim),
        "width": resized(experiment, f"{name}-width", 0, wider),
    }


class Measured(Config):
    """What a finished run has come to; kept beside it as JSON, which is all that the other runs need to know of it."""

    nll: float
    """The lowest cross-entropy of all its validations, in nats a target token, without label smoothing."""
    step: int
    """The update after which it was measured."""
    updates: int
    """Updates of the whole run."""
    seconds: float
    """Spent on the updates."""
    data: str
    """The fingerprint of the training data, segmentation included."""
    vocabularies: tuple[int, int]
    """Pieces of source and target."""
    experiment: dict[str, Any]
    """The resolved configuration."""


def measure(experiment: Experiment, run: RunDirectory) -> Measured:
    """Read off a finished run what it has come to.

    Raises:
        ModelError: if no validation has brought a finite cross-entropy, or the run has no state.
    """
    records = [record for _, record in whole_records(run.log)]
    validated = [one for one in records if one["event"] == "validation" and one["nll"] is not None]
    values = checkpoint.read_values(run.last)
    if not validated or not values:
        raise ModelError(f"{run.path}: has no finite validation cross-entropy to compare. See {run.log}.")
    best = min(validated, key=lambda one: (one["nll"], one["step"]))
    segmentation = Segmentation.load(run.segmentation)
    return Measured(
        nll=best["nll"],
        step=best["step"],
        updates=values["trainer"]["position"]["step"],
        seconds=RunState.from_plain(values["run"]).total.seconds,
        data=values["data"],
        vocabularies=(segmentation.source.vocabulary_size, segmentation.target.vocabulary_size),
        experiment=experiment.plain(),
    )


def measured_run(name: str, experiment: Experiment, out: Path, train: Callable[[Experiment, Path], None]) -> Measured:
    """What the run `out/name` comes to: from `out/name.json` if it is finished, or else by training it, or further.

    Args:
        name: of the run.
        experiment: that it is of.
        out: the directory of the scaling.
        train: trains an experiment into a RUN directory, or goes on there; see `jointnmt.training.run.train`.

    Raises:
        ConfigurationError: if the run has another configuration, or was trained for longer than is asked for.
    """
    run, file = RunDirectory(out / name), out / f"{name}.json"
    if file.exists():
        measured = _read_measured(file)
        changed = {line.partition(":")[0]: line for line in differences(measured.experiment, experiment.plain())}
        if forbidden := [line for key, line in changed.items() if key not in MAY_CHANGE]:
            raise ConfigurationError(
                f"{file}: was measured with another configuration: {'; '.join(forbidden)}. Choose another directory "
                "for --out, or go back to the old configuration."
            )
        if not changed.keys() & set(ENDS):
            logger.info("%s: is finished, cross-entropy %.5f after update %d", file, measured.nll, measured.step)
            return measured
    _check_not_beyond(run, experiment)
    logger.info("%s: training", run.path)
    train(experiment, run.path)
    measured = measure(experiment, run)
    if is_first():
        checkpoint.write_text(file, json.dumps(measured.plain(), indent=2, ensure_ascii=False) + "\n")
    return measured


def _read_measured(file: Path) -> Measured:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(
            f"{file}: is not valid JSON. Delete it: the run beside it is then read anew."
        ) from error
    return Measured.parse(values if isinstance(values, dict) else {}, origin=str(file))


def _check_not_beyond(run: RunDirectory, experiment: Experiment) -> None:
    """Refuse a run that has gone further than is asked for: the others would have had less training."""
    if not (values := checkpoint.read_values(run.last)):
        return
    position, config = values["trainer"]["position"], experiment.training
    done = {"updates": position["step"], "epochs": position["epoch"] + (position["update"] > 0)}
    for unit, most in (("updates", config.max_updates), ("epochs", config.max_epochs)):
        if most is not None and done[unit] > most:
            raise ConfigurationError(
                f"{run.path}: has been trained for {done[unit]} {unit}, and {most} are asked for now. Cross-entropies "
                f"compare only after equal training: ask for at least {done[unit]}, or choose another directory "
                "for --out."
            )


@dataclass(frozen=True)
class Scaling:
    """What the three runs have said: the scaled experiment, or why there is none."""

    gradient: Gradient
    step: Step | None
    experiment: Experiment | None
    refused: str | None = None


def scale(experiment: Experiment, measured: Mapping[str, Measured], ratio: float, epsilon: int) -> Scaling:
    """Solve Eq. 11 for the three runs, and round.

    Raises:
        DataError: if they were not trained on the same data.
    """
    if len({one.data for one in measured.values()}) > 1:
        raise DataError(
            "The runs were not trained on the same data, segmentation included, so that their cross-entropies do not "
            "compare. Train them anew on the same files, in another directory."
        )
    losses = [measured[name].nll for name in PROBES]
    gradient, step = Gradient(*((losses[0] - loss) / epsilon for loss in losses[1:])), None
    try:
        alpha = step_size(StackSize.of(experiment.model), width_ratio(experiment.model), gradient, ratio)
        step = Step(alpha, alpha * gradient.depth, alpha * gradient.width)
        return Scaling(gradient, step, rounded(experiment, step))
    except ScalingError as error:
        return Scaling(gradient, step, None, str(error))


def rounded(experiment: Experiment, step: Step) -> Experiment:
    """The experiment after the step, with whole layers and an F that is a multiple of `width_unit`.

    Raises:
        ScalingError: if that is no larger model, or has no layers or no width left.
    """
    model = experiment.model
    layers, unit = round_half_up(step.layers), width_unit(model.embed_dim)
    ffn_dim = round_half_up((width_ratio(model) + step.width) * model.embed_dim / unit) * unit
    if round_half_up(step.width * model.embed_dim / unit) == 0:
        ffn_dim = model.ffn_dim  # as it is, even where that is no multiple
    told = f"The step is {step.layers:+.2f} layers and {step.width:+.2f} widths of E"
    if min(depths(model).values()) + layers < 1 or ffn_dim < 1:
        raise ScalingError(f"{told}, which leaves no model. Ask for a smaller ratio.")
    size = StackSize.of(model)
    if size.parameters(layers, ffn_dim / model.embed_dim) <= size.parameters(0, width_ratio(model)):
        raise ScalingError(
            f"{told}; in whole layers, and an F in multiples of {unit}, that is no larger model. Ask for a "
            "greater ratio."
        )
    return resized(experiment, f"{experiment.name}-scaled", layers, ffn_dim)


def added_layers(base: ModelConfig, scaled: ModelConfig) -> int:
    """How many layers more every stack of the scaled model has."""
    return next(depths(scaled)[key] - depth for key, depth in depths(base).items())


def parameter_ratio(base: ModelConfig, scaled: ModelConfig) -> float:
    """P(scaled) / P(base), by Eq. 8."""
    size = StackSize.of(base)
    return size.parameters(added_layers(base, scaled), width_ratio(scaled)) / size.parameters(0, width_ratio(base))


@dataclass(frozen=True)
class Cost:
    """What was trained, compared with a grid search over whole layers and whole widths of E from the model to the
    scaled one, both included. `relative` counts trainings of the base, if a training costs what it has parameters."""

    trainings: int
    relative: float
    seconds: float
    grid_trainings: int
    grid_relative: float

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return asdict(self)


def cost(base: ModelConfig, scaled: ModelConfig, measured: Mapping[str, Measured], epsilon: int) -> Cost:
    """The cost of the three runs and of a grid search."""
    size, width, ends = StackSize.of(base), width_ratio(base), width_ratio(scaled)
    layers, wider = added_layers(base, scaled), ends - width
    depth_points = [math.copysign(number, layers) for number in range(abs(layers) + 1)]
    width_points = [width + math.copysign(number, wider) for number in range(math.ceil(abs(wider)))] + [ends]

    def relative(points: list[tuple[float, float]]) -> float:
        return sum(size.parameters(*point) for point in points) / size.parameters(0, width)

    grid = [(depth, point) for depth in depth_points for point in width_points]
    three = [(0.0, width), (float(epsilon), width), (0.0, width + epsilon)]
    seconds = sum(one.seconds for one in measured.values())
    return Cost(len(three), relative(three), seconds, len(grid), relative(grid))
