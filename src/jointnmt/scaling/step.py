"""From what three runs have come to, along a gradient, to a larger model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.models import ModelConfig
from jointnmt.scaling.runs import RUNS, RunOutcome
from jointnmt.scaling.sizes import StackSize, added_layers, depths, resized, width_ratio

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


@dataclass(frozen=True)
class Scaling:
    """What the three runs have said: the scaled experiment, or why there is none."""

    gradient: Gradient
    step: Step | None
    experiment: Experiment | None
    refused: str | None = None


def scale(experiment: Experiment, measured: Mapping[str, RunOutcome], ratio: float, epsilon: int) -> Scaling:
    """Solve Eq. 11 for the three runs, and round.

    Raises:
        DataError: if they were not trained on the same data.
    """
    if len({one.data for one in measured.values()}) > 1:
        raise DataError(
            "The runs were not trained on the same data, segmentation included, so that their cross-entropies do not "
            "compare. Train them anew on the same files, in another directory."
        )
    losses = [measured[name].nll for name in RUNS]
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


def cost(base: ModelConfig, scaled: ModelConfig, measured: Mapping[str, RunOutcome], epsilon: int) -> Cost:
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
