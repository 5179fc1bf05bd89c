"""How large a model is, in layers and widths, and how it is made larger."""

from __future__ import annotations

from dataclasses import dataclass

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.models import ModelConfig

SHORTCUT_MATRICES = {"plain": 2, "fusion": 6}
"""How many E x E matrices the shortcuts of an attention layer add (Emelin et al. 2019, Eqs. 5-8 and 13-14)."""


@dataclass(frozen=True)
class AttentionStack:
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

    places: tuple[AttentionStack, ...]

    @classmethod
    def of(cls, config: ModelConfig) -> StackSize:
        """Of a model of any family."""
        shortcuts = 0 if config.shortcuts is None else SHORTCUT_MATRICES[config.shortcuts.kind]
        return cls(
            tuple(
                AttentionStack(depth, 4 + shortcuts * (place in config.shortcut_places), int(place != "cross"))
                for place, depth in config.attention_depths().items()
            )
        )

    def parameters(self, layers: float, width: float) -> float:
        """P with `layers` more in every stack, and width ratio `width`."""
        return sum((place.depth + layers) * (place.attention + 2 * place.blocks * width) for place in self.places)


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


def added_layers(base: ModelConfig, scaled: ModelConfig) -> int:
    """How many layers more every stack of the scaled model has."""
    return next(depths(scaled)[key] - depth for key, depth in depths(base).items())


def parameter_ratio(base: ModelConfig, scaled: ModelConfig) -> float:
    """P(scaled) / P(base), by Eq. 8."""
    size = StackSize.of(base)
    return size.parameters(added_layers(base, scaled), width_ratio(scaled)) / size.parameters(0, width_ratio(base))
