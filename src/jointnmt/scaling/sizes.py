"""Model sizes in layers and widths, and resized models."""

from __future__ import annotations

from dataclasses import dataclass

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.models import ModelConfig

SHORTCUT_MATRICES = {"plain": 2, "fusion": 6}
"""Number of E x E matrices that shortcuts add to an attention layer (Emelin et al. 2019, Eqs. 5-8 and 13-14)."""


@dataclass(frozen=True)
class AttentionStack:
    """A stack of attention layers of one kind, with their feed-forward blocks."""

    depth: int
    attention: int
    """Number of E x E matrices in an attention layer."""
    blocks: int
    """Number of feed-forward blocks per layer, of 2 w E^2 weights each: 1 or 0."""


@dataclass(frozen=True)
class StackSize:
    """P(l, w), the parameters of a model without embeddings, biases and norms, in units of E^2 (Eq. 8).

    Eq. 8 is P = 2 l (4 + 2w) for a Reformer-base. Here it is the sum over all attention stacks, so that it holds for
    stacks of unequal depth, and for the Transformer, in which cross-attention has no feed-forward block. It is linear
    in l and in w, as the closed form of Eq. 11 requires.
    """

    stacks: tuple[AttentionStack, ...]

    @classmethod
    def of(cls, config: ModelConfig) -> StackSize:
        """The size of a model of any family."""
        shortcuts = 0 if config.shortcuts is None else SHORTCUT_MATRICES[config.shortcuts.kind]
        return cls(
            tuple(
                AttentionStack(depth, 4 + shortcuts * (place in config.shortcut_places), int(place != "cross"))
                for place, depth in config.attention_depths().items()
            )
        )

    def parameters(self, layers: float, width: float) -> float:
        """P with `layers` more layers in every stack, and width ratio `width`."""
        return sum((each.depth + layers) * (each.attention + 2 * each.blocks * width) for each in self.stacks)


def depths(config: ModelConfig) -> dict[str, int]:
    """Configuration keys that set numbers of layers, with their values.

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
    """The experiment with another name, `layers` more layers in every stack, and another F.

    Raises:
        ConfigurationError: if the family does not allow these sizes.
    """
    values = experiment.plain()
    changed = {key: depth + layers for key, depth in depths(experiment.model).items()}
    model = {**values["model"], **changed, "ffn_dim": ffn_dim}
    return Experiment.parse({**values, "name": name, "model": model}, origin=name)


def added_layers(base: ModelConfig, scaled: ModelConfig) -> int:
    """Number of layers that scaling adds to every stack."""
    return next(depths(scaled)[key] - depth for key, depth in depths(base).items())


def parameter_ratio(base: ModelConfig, scaled: ModelConfig) -> float:
    """P(scaled) / P(base), by Eq. 8."""
    size = StackSize.of(base)
    return size.parameters(added_layers(base, scaled), width_ratio(scaled)) / size.parameters(0, width_ratio(base))
