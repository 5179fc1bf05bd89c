"""Ensembles: several models combined by the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jointnmt.errors import ConfigurationError
from jointnmt.models.interface import AttentionMaps, AttentionPart, DecoderState, TranslationModel
from jointnmt.ops import log_softmax


@dataclass
class EnsembleState:
    """Decoder states of all members, with the same rows."""

    states: list[DecoderState]

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        """See `DecoderState.select`."""
        return type(self)([state.select(rows) for state in self.states])


class Ensemble(TranslationModel):
    """A model whose next-token probabilities are the mean of those of its members, which may be of any family.

    Its logits are the logarithms of these means; for a single member, that member's logits. It is for inference: search
    expects its members in evaluation mode, and it provides no attention weights but the mean of the alignments.

    Args:
        members: models with the same target vocabulary, on one device.
        sources: inputs of the members that replace the source passed in a call, if they segment sources differently:
            a tensor `[B, S]` for each member, with rows in the order of the call's. None: all read the same.

    Raises:
        ConfigurationError: if there is no member, or they are on different devices.
    """

    def __init__(
        self, members: Iterable[TranslationModel], sources: Sequence[Int[Tensor, "B _"]] | None = None
    ) -> None:
        super().__init__()
        self._members = nn.ModuleList(members)
        self._sources = sources
        devices = sorted({str(parameter.device) for parameter in self.parameters()})
        if not self.members:
            raise ConfigurationError("An ensemble needs at least one model.")
        if len(devices) > 1:
            raise ConfigurationError(
                f"The models of an ensemble are on different devices ({', '.join(devices)}). Move them to one."
            )
        if not any(member.training for member in self.members):
            self.eval()

    @property
    def members(self) -> Sequence[TranslationModel]:
        """The combined models."""
        return cast("Sequence[TranslationModel]", self._members)

    def reading(self, sources: Sequence[Int[Tensor, "B _"]]) -> Ensemble:
        """The same ensemble for one batch, with a source tensor for each member, in its own segmentation."""
        if len(sources) != len(self.members):
            raise ValueError(f"{len(sources)} sources for {len(self.members)} models")
        return Ensemble(self.members, sources)

    def forward(
        self, source: Int[Tensor, "B S"], target_input: Int[Tensor, "B T"], attn_weights: AttentionMaps | None = None
    ) -> Float[Tensor, "B T V"]:
        """See `TranslationModel.forward`; only the alignment of `attn_weights` is filled.

        Raises:
            ValueError: if `attn_weights` is given, and the members segment sources differently.
        """
        wanted = frozenset[AttentionPart](["alignment"])
        found = [AttentionMaps(wanted=wanted) if attn_weights is not None else None for _ in self.members]
        calls = zip(self.members, self._read(source), found, strict=True)
        logits = mean_of_probabilities(member(each, target_input, weights) for member, each, weights in calls)
        if attn_weights is not None:
            attn_weights.alignment = self._mean_alignment([each for each in found if each is not None])
        return logits

    def start(self, source: Int[Tensor, "B S"]) -> EnsembleState:
        """See `TranslationModel.start`."""
        return EnsembleState(
            [member.start(each) for member, each in zip(self.members, self._read(source), strict=True)]
        )

    def step(self, last_ids: Int[Tensor, " N"], state: DecoderState) -> tuple[Float[Tensor, "N V"], EnsembleState]:
        """See `TranslationModel.step`."""
        assert isinstance(state, EnsembleState)
        found = [member.step(last_ids, each) for member, each in zip(self.members, state.states, strict=True)]
        return mean_of_probabilities(logits for logits, _ in found), EnsembleState([after for _, after in found])

    def _read(self, source: Tensor) -> Sequence[Tensor]:
        """Source tensor of each member."""
        if self._sources is None:
            return [source] * len(self.members)
        assert all(len(each) == len(source) for each in self._sources), "sources of another batch"
        return self._sources

    def _mean_alignment(self, found: Sequence[AttentionMaps]) -> Tensor:
        if self._sources is not None:
            raise ValueError("members with different source segmentations have no mean alignment")
        return torch.stack([each.require_alignment() for each in found]).mean(0)


def mean_of_probabilities(logits: Iterable[Float[Tensor, "*rows V"]]) -> Float[Tensor, "*rows V"]:
    """The logarithm of the mean of several distributions; a single model's logits are returned unchanged.

    Sums are kept relative to the largest summand so far, so that no probability underflows, in two tensors of this size
    besides the inputs. All operations are element-wise: a row's result does not depend on the other rows.

    Raises:
        ConfigurationError: if their vocabularies differ in size.
    """
    first, *others = logits
    if not others:
        return first
    greatest = log_softmax(first)
    total = torch.ones_like(greatest)
    for each in others:
        if each.shape[-1] != first.shape[-1]:
            raise ConfigurationError(
                f"The models of an ensemble have target vocabularies of {first.shape[-1]} and {each.shape[-1]} pieces, "
                "but must share one."
            )
        found = log_softmax(each)
        # A token of minus infinity in all models must stay so: the difference would be NaN.
        larger = torch.maximum(greatest, found).clamp_min_(torch.finfo(found.dtype).min)
        total = total.mul_((greatest - larger).exp_()).add_((found - larger).exp_())
        greatest = larger
    return total.div_(len(others) + 1).log_().add_(greatest)
