"""The interface of models that search, training and analysis rely on, whatever the family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol, Self, get_args

from jaxtyping import Float, Int
from torch import Tensor, nn

from jointnmt.errors import ModelError
from jointnmt.ops import MultiStepDecoder

if TYPE_CHECKING:
    from jointnmt.models.common import FamilyConfig


class DecoderState(Protocol):
    """A model's state between positions for N live rows: caches of keys and values, and the source.

    The caller owns the state; modules hold none. Caches grow in place: `step` and `select` consume a state, and only
    the state that they return may be used afterwards.
    """

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        """The state whose row i is this state's row `rows[i]`: repeats, reorders and drops rows; `rows` is on the CPU.

        It is fastest when the rows of a sentence stay adjacent and every sentence has equally many: its rows then share
        keys and values, and only sentences that take the place of dropped ones are copied.
        """
        ...


class MultiStepState(DecoderState, Protocol):
    """A decoder state to which positions can be added that a `MultiStepDecoder` has decoded."""

    def take_positions(self, slots: Int[Tensor, "N t"]) -> None:
        """Add positions, given the cache slots of each row's past."""
        ...


class AttentionRecord(NamedTuple):
    """Lists that an attention layer appends its weights and gates to; None: not recorded."""

    weights: list[Tensor] | None = None
    """Attention weights, before dropout."""
    gates: list[Tensor] | None = None
    """Gates of a lexical shortcut `[*places, 2, E]`: of the keys, then of the values."""


AttentionPart = Literal["weights", "alignment", "gates"]


@dataclass
class AttentionMaps:
    """Attention weights of one teacher-forced pass, and the gates of lexical shortcuts.

    There is one entry a layer; weights sum to 1 over the last axis. Which lists are filled depends on the family:
    `encoder`, `decoder` and `cross` for a Transformer; `prenet`, `source` and `target` for a Reformer.
    """

    encoder: list[Float[Tensor, "B H S S"]] = field(default_factory=list)
    decoder: list[Float[Tensor, "B H T T"]] = field(default_factory=list)
    cross: list[Float[Tensor, "B H T S"]] = field(default_factory=list)
    prenet: list[Float[Tensor, "B H S S"]] = field(default_factory=list)
    source: list[Float[Tensor, "B H T S S"]] = field(default_factory=list)
    """Source attention: for each target position t, the weights of every source position over all of them."""
    target: list[Float[Tensor, "B H S T T"]] = field(default_factory=list)
    """Target attention: for each source position s, the weights of every target position over those up to itself."""
    alignment: Float[Tensor, "B T S"] | None = None
    """Share of each source position in each target position: the reduction's weights, averaged over features, or cross
    attention, averaged over layers and heads."""
    wanted: frozenset[AttentionPart] = frozenset(get_args(AttentionPart))
    """What to record; an alignment alone needs the weights of cross attention at most."""
    _gates: dict[str, list[Float[Tensor, "B *places 2 E"]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def gates(self) -> dict[str, list[Float[Tensor, "B *places 2 E"]]]:
        """Gates of lexical shortcuts: by place, named as the lists above, then layer.

        The gates of keys, then of values, are between 0 (all hidden) and 1 (all lexical), for positions `[B, L]` or
        cells `[B, S, T]`.
        """
        return {place: layers for place, layers in self._gates.items() if layers}

    @property
    def wants_alignment(self) -> bool:
        """Whether a model is to set `alignment`."""
        return bool(self.wanted & {"weights", "alignment"})

    def at(self, place: str) -> AttentionRecord:
        """The record that attention layers at `place` append to."""
        wanted = "weights" in self.wanted or (place == "cross" and "alignment" in self.wanted)
        return AttentionRecord(
            weights=getattr(self, place) if wanted else None,
            gates=self._gates[place] if "gates" in self.wanted else None,
        )

    def require_alignment(self) -> Float[Tensor, "B T S"]:
        """The alignment, after the pass.

        Raises:
            ModelError: if the model did not set it.
        """
        if self.alignment is None:
            raise ModelError(
                "This model does not provide an alignment. Disable alignments, or set `attn_weights.alignment` in "
                "its `forward`."
            )
        return self.alignment


NO_RECORD = AttentionRecord()


def record_at(attn_weights: AttentionMaps | None, place: str) -> AttentionRecord:
    """The record that attention layers at `place` append to, of a pass that may not record anything."""
    return NO_RECORD if attn_weights is None else attn_weights.at(place)


class LayerStack(NamedTuple):
    """Layers that refine one residual stream."""

    layers: Sequence[nn.Module]
    """Each takes the stream as its first argument and returns it."""
    norm: nn.Module | None = None
    """The final layer norm, if the stack has one; the identity counts as none."""


class TranslationModel(nn.Module, ABC):
    """A model of p(target | source).

    Tensors in, tensors out: sources end with the end mark, target inputs begin with the begin mark, padding is on the
    right.
    """

    config: FamilyConfig | None = None
    """Settings that it was built with; None for a model that is not built from a recipe."""

    capturable: ClassVar[bool] = False
    """Whether training may capture `forward`, `extra_loss` and their backward pass as a CUDA graph.

    Each shape of a batch is then captured once, and replayed without calling them. So all that changes between updates
    has to be in parameters and in buffers that are written in place: a Python value (an annealed weight, a
    temperature), random numbers of Python or NumPy, and a choice by a tensor's value would stay what they were at the
    capture, silently. Not inherited: each class has to say so itself, as it may compute something else.
    """

    layer_methods: tuple[str, ...] = ()
    """Methods of layers, besides `forward`, that use their weights: a sharded training gathers these before a call."""

    @property
    def has_shortcuts(self) -> bool:
        """Whether the model has lexical shortcuts, and records their gates in `AttentionMaps.gates`."""
        return self.config is not None and bool(self.config.shortcut_places)

    @property
    def recomputes_layers(self) -> bool:
        """Whether layers are recomputed in the backward pass (`activation_checkpointing`)."""
        return self.config is not None and self.config.activation_checkpointing

    def stacks(self) -> Mapping[str, LayerStack]:
        """Stacks of layers for analyses, from bottom to top; none of them is empty.

        The names are `encoder`, `decoder` and `prenet`, for sequences `[B, L, E]`, and `grid`, for `[B, S, T, E]`. A
        model with stacks has modules `source_embedding` and `target_embedding`; one with a grid has a module
        `reduction`, and attention weights at `source` and `target`.
        """
        return {}

    @abstractmethod
    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        """Teacher-forced logits of every next target token; fills `attn_weights` and its alignment, if given."""

    def extra_loss(
        self, logits: Float[Tensor, "B T V"], target_output: Int[Tensor, "B T"], weights: Float[Tensor, "B T"]
    ) -> Float[Tensor, ""] | None:
        """A term that training adds to the cross-entropy, for families that have one; None: there is none.

        Called right after the `forward` that returned `logits`, in the same autocast; `forward` may keep what the term
        needs in attributes of the model: tensors, or tuples, lists or dictionaries of them, and in training only (`if
        self.training`), to save memory. How much it counts is a setting of the family. Perplexity leaves it out.

        Args:
            logits: output of `forward`.
            target_output: gold tokens.
            weights: weight of each token in the loss, 0 for padding. The term is a sum over tokens, each times its
                weight, in nats and float32: then an update does not depend on how it is divided into batches.
        """
        return None

    @abstractmethod
    def start(self, source: Int[Tensor, "B S"]) -> DecoderState:
        """Decoder state before the first target position, with one row for each source."""

    @abstractmethod
    def step(self, last_ids: Int[Tensor, " N"], state: DecoderState) -> tuple[Float[Tensor, "N V"], DecoderState]:
        """Logits of the next target token of every live row, after its newest token `last_ids` (at first `bos_id`).

        For search under `torch.no_grad`, as caches are written in place; use `forward` for gradients.
        """

    def multi_step_decoder(self, state: DecoderState) -> MultiStepDecoder | None:
        """A decoder of the next positions that does all that `step` does, for the rows after the last `select`.

        The state has to be a `MultiStepState`. None: search calls `step` for each position. A model that calls another
        one's `step` and changes its logits must not return that one's decoder.
        """
        return None
