"""What search, training and analysis may rely on, whatever the family of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from jaxtyping import Float, Int
from torch import Tensor, nn

from jointnmt.errors import ModelError
from jointnmt.ops import MultiStepDecoder

if TYPE_CHECKING:
    from jointnmt.models.common import FamilyConfig


class DecoderState(Protocol):
    """What a model keeps between positions for N live rows: caches of keys and values, and the source.

    The caller owns the state; modules hold none. Caches grow in place: `step` and `select` use a state up, and only
    the state that they return may be used after.
    """

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        """The state whose row i is this state's row `rows[i]`: repeats, reorders and drops rows; `rows` is on the CPU.

        It is fastest when the rows of one sentence stay side by side and every sentence has equally many; then keys
        and values are shared by a sentence's rows and nothing is copied, but the sentences that fill the place of
        dropped ones.
        """
        ...


class MultiStepState(ABC):
    """A decoder state that may decode several positions without the model's `step`."""

    @abstractmethod
    def multi_step_decoder(self) -> MultiStepDecoder | None:
        """What decodes them, if they can be: the rows stay, and the tokens that `select` has led to are the next."""

    @abstractmethod
    def take_positions(self, slots: Int[Tensor, "N t"]) -> None:
        """Take over positions that were decoded so, as the slots of each row's past."""


class AttentionRecord(NamedTuple):
    """Where an attention layer appends its weights and gates, if a caller wants them."""

    weights: list[Tensor] | None
    """Attention weights, before dropout; None: they are not wanted."""
    gates: list[Tensor]
    """Gates of a lexical shortcut `[*places, 2, E]`: of the keys, then of the values."""


@dataclass
class AttentionMaps:
    """Attention weights of one teacher-forced pass, one entry a layer; each sums to 1 over its last axis. And the gates
    of lexical shortcuts.

    Which lists are filled depends on the family: `encoder`, `decoder` and `cross` of a Transformer; `prenet`, `source`
    and `target` of a Reformer.
    """

    encoder: list[Float[Tensor, "B H S S"]] = field(default_factory=list)
    decoder: list[Float[Tensor, "B H T T"]] = field(default_factory=list)
    cross: list[Float[Tensor, "B H T S"]] = field(default_factory=list)
    prenet: list[Float[Tensor, "B H S S"]] = field(default_factory=list)
    source: list[Float[Tensor, "B H T S S"]] = field(default_factory=list)
    """Source attention: under each target position t, the weights of every source position over the others."""
    target: list[Float[Tensor, "B H S T T"]] = field(default_factory=list)
    """Target attention: under each source position s, the weights of every target position over the earlier ones."""
    alignment: Float[Tensor, "B T S"] | None = None
    """How much each source position contributes to each target position: the reduction's weights, averaged over
    features, or cross attention, averaged over layers and heads."""
    only_alignment: bool = False
    """Whether, of the weights, only those are kept that the alignment is made of: cross attention's."""
    _gates: dict[str, list[Float[Tensor, "B *places 2 E"]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def gates(self) -> dict[str, list[Float[Tensor, "B *places 2 E"]]]:
        """Of models with lexical shortcuts: for each place of the above lists that has any, the gates of every layer.

        They are those of keys and of values, between 0 (all hidden) and 1 (all lexical), of positions `[B, L]` or cells
        `[B, S, T]`.
        """
        return {place: layers for place, layers in self._gates.items() if layers}

    def at(self, place: str) -> AttentionRecord:
        """Where the attention layers at `place` append."""
        wanted = place == "cross" or not self.only_alignment
        return AttentionRecord(getattr(self, place) if wanted else None, self._gates[place])

    def require_alignment(self) -> Float[Tensor, "B T S"]:
        """The alignment, after the pass.

        Raises:
            ModelError: if the model has written none.
        """
        if self.alignment is None:
            raise ModelError(
                "The model says nothing of its alignment. Ask for none; or mend its family, whose forward pass should "
                "fill attn_weights.alignment."
            )
        return self.alignment


class LayerStack(NamedTuple):
    """Layers that refine one residual stream."""

    layers: Sequence[nn.Module]
    """Each takes the stream as its first argument and returns it."""
    norm: nn.Module | None = None
    """The final layer norm, if the stack ends with one."""


class TranslationModel(nn.Module, ABC):
    """A model of p(target | source).

    Tensors in, tensors out: sources end with the end mark, target inputs begin with the begin mark, padding is on the
    right.
    """

    config: FamilyConfig | None = None
    """How it was built; None of a model that is in no recipe."""

    @property
    def has_shortcuts(self) -> bool:
        """Whether the model has lexical shortcuts, whose gates it writes into `AttentionMaps.gates`."""
        return self.config is not None and bool(self.config.shortcut_places)

    @property
    def recomputes_layers(self) -> bool:
        """Whether layers are computed again in the backward pass (`activation_checkpointing`)."""
        return self.config is not None and self.config.activation_checkpointing

    def stacks(self) -> Mapping[str, LayerStack]:
        """The stacks of layers that analyses may look into, from the bottom; none of them is empty.

        There are four names: `encoder`, `decoder` and `prenet` of sequences `[B, L, E]`, `grid` of `[B, S, T, E]`. A
        model with any has modules `source_embedding` and `target_embedding`; one with a grid a `reduction`, and
        attention weights at `source` and `target`.
        """
        return {}

    @abstractmethod
    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        """Logits of every next target token, teacher-forced; `attn_weights`, if given, is filled, its alignment too."""

    @abstractmethod
    def start(self, source: Int[Tensor, "B S"]) -> DecoderState:
        """The state before the first target position: one row for each source."""

    @abstractmethod
    def step(self, last_ids: Int[Tensor, " N"], state: DecoderState) -> tuple[Float[Tensor, "N V"], DecoderState]:
        """Logits of the next target token of every live row, whose newest token is `last_ids` (`bos_id` at first).

        Caches are written in place, so these logits are for search, under `torch.no_grad`: a gradient is `forward`'s.
        """
