"""The scaled model: a step along the gradient estimated from the outcomes of three runs."""

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
"""Smallest ratio that error messages suggest."""


class ScalingError(ConfigurationError):
    """The measured gradient does not lead to a larger model: this recipe cannot be scaled by this ratio."""


class Gradient(NamedTuple):
    """Decrease of validation cross-entropy per unit, in nats per token (Eq. 10).

    The paper maximises a performance L; here L is the negative cross-entropy.
    """

    depth: float
    """Decrease per layer added to every stack."""
    width: float
    """Decrease per E hidden features added to every feed-forward block."""


class Step(NamedTuple):
    """The step to the scaled model, before rounding."""

    alpha: float
    """Step size along the gradient (Eq. 11)."""
    layers: float
    width: float


def step_size(size: StackSize, width: float, gradient: Gradient, ratio: float) -> float:
    """The step size at which the model has `ratio` times the parameters (Eq. 11), in closed form.

    P is linear in both arguments, so P(l + alpha L'_l, w + alpha L'_w) = P + b alpha + a alpha^2; the result is the
    smallest positive alpha at which this is `ratio` P, in a form without cancellation for small `a`.

    Raises:
        ScalingError: if larger models are worse, or no alpha reaches the ratio.
    """
    if max(gradient) <= 0:
        raise ScalingError(
            f"Larger is worse here: validation cross-entropy falls by {gradient.depth:.5f} nats a layer and by "
            f"{gradient.width:.5f} nats a width of E (negative: it rises), so the gradient leads only to smaller "
            "models. Train the runs for longer, or regularise them more (model.dropout), and scale again."
        )
    here, unit = size.parameters(0, width), size.parameters(1, width)
    wider, both = size.parameters(0, width + 1) - here, size.parameters(1, width + 1) - unit
    b = gradient.depth * (unit - here) + gradient.width * wider
    a = gradient.depth * gradient.width * (both - wider)
    wanted = (ratio - 1) * here
    discriminant = b * b + 4 * a * wanted
    if b <= 0 or discriminant < 0:
        most = 1 + b * b / (-4 * a * here) if b > 0 else 1.0
        instead = "" if most < SMALLEST_RATIO else ", or request a smaller ratio"
        widen, deepen = f"{wanted / wider:.2f} widths of E", f"{wanted / (unit - here):.2f} layers"
        alone = f"{widen} more, at its depth," if gradient.width > 0 else f"{deepen} more, at its width,"
        raise ScalingError(
            f"The ratio {ratio:g} cannot be reached: one side of the gradient is negative ({gradient.depth:.5f} nats a "
            f"layer, {gradient.width:.5f} nats a width of E), and along it a model has at most {most:.3f} times the "
            f"parameters. Train the runs for longer{instead}, and scale again; or scale one side only: {alone} "
            "have the ratio."
        )
    return 2 * wanted / (b + math.sqrt(discriminant))


def round_half_up(number: float) -> int:
    """The nearest integer, halves rounded up."""
    return math.floor(number + 0.5)


def width_unit(embed_dim: int) -> int:
    """The unit that F is rounded to: efficient for matrix products on GPUs, and fine enough for small models.

    For E of at least 256 it is E, as in the paper (6.27 E becomes 6 E), or 64 if E is not a multiple of 64. A whole E
    is too coarse for small models: below 256 it is 64, and below 64, 8.
    """
    if embed_dim >= 256 and embed_dim % 64 == 0:
        return embed_dim
    return 64 if embed_dim >= 64 else 8


@dataclass(frozen=True)
class Scaling:
    """The result of a scaling: the scaled experiment, or the reason why there is none."""

    gradient: Gradient
    step: Step | None
    experiment: Experiment | None
    refused: str | None = None


def scale(experiment: Experiment, measured: Mapping[str, RunOutcome], ratio: float, epsilon: int) -> Scaling:
    """Solve Eq. 11 for the outcomes of the three runs, and round.

    Raises:
        DataError: if they were not trained and validated on the same data.
        ConfigurationError: if they were not trained in the same precision.
    """
    if len({one.data for one in measured.values()}) > 1:
        raise DataError(
            "The runs were not trained on the same data, segmentation included, so their cross-entropies are not "
            "comparable. Train them again on the same files, in another directory."
        )
    if len({one.validation for one in measured.values()} - {None}) > 1:
        raise DataError(
            "The runs were not validated on the same text, so their cross-entropies are not comparable. Train them "
            "again on the same files, in another directory."
        )
    _check_precisions({name: measured[name].precision for name in RUNS})
    losses = [measured[name].nll for name in RUNS]
    gradient, step = Gradient(*((losses[0] - loss) / epsilon for loss in losses[1:])), None
    try:
        alpha = step_size(StackSize.of(experiment.model), width_ratio(experiment.model), gradient, ratio)
        step = Step(alpha, alpha * gradient.depth, alpha * gradient.width)
        return Scaling(gradient, step, rounded(experiment, step))
    except ScalingError as error:
        return Scaling(gradient, step, None, str(error))


def _check_precisions(trained_in: Mapping[str, str]) -> None:
    """Check that all runs have the same precision; `auto` may choose different ones on several machines."""
    if others := [name for name, precision in trained_in.items() if precision != trained_in["base"]]:
        listed = ", ".join(f"{name} in {precision}" for name, precision in trained_in.items())
        raise ConfigurationError(
            f"The runs were not trained in the same precision ({listed}), so their cross-entropies are not comparable. "
            f"Delete the folder and the .json of {' and '.join(others)}: the same command then uses that of base."
        )


def rounded(experiment: Experiment, step: Step) -> Experiment:
    """The experiment after the step, with whole layers and F a multiple of `width_unit`.

    Raises:
        ScalingError: if the model is not larger, has no layers or no width left, or exceeds the largest sizes.
    """
    model = experiment.model
    layers, unit = round_half_up(step.layers), width_unit(model.embed_dim)
    ffn_dim = round_half_up((width_ratio(model) + step.width) * model.embed_dim / unit) * unit
    if round_half_up(step.width * model.embed_dim / unit) == 0:
        ffn_dim = model.ffn_dim  # unchanged, even if not a multiple
    step_text = f"The step is {step.layers:+.2f} layers and {step.width:+.2f} widths of E"
    if min(depths(model).values()) + layers < 1 or ffn_dim < 1:
        raise ScalingError(f"{step_text}, which leaves no layers or no width. Request a smaller ratio.")
    size = StackSize.of(model)
    if size.parameters(layers, ffn_dim / model.embed_dim) <= size.parameters(0, width_ratio(model)):
        raise ScalingError(
            f"{step_text}; rounded to whole layers, and an F in multiples of {unit}, the model is not larger. Request "
            "a larger ratio."
        )
    try:
        return resized(experiment, f"{experiment.name}-scaled", layers, ffn_dim)
    except ConfigurationError as error:
        raise ScalingError(f"{step_text}, to sizes that are not allowed ({error}). Request a smaller ratio.") from error


@dataclass(frozen=True)
class Cost:
    """The cost of scaling, and of a grid search over whole layers and widths of E between both models, inclusive.

    `relative` costs are in trainings of the base model, assuming cost proportional to parameters.
    """

    trainings: int
    relative: float
    seconds: float
    grid_trainings: int
    grid_relative: float

    def plain(self) -> dict[str, Any]:
        """The cost as JSON-compatible values."""
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
