"""A trained model that is ready to compute: what translating, scoring and analyses share."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import get_args

import torch

from jointnmt.data.batch import collate_sources
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.models import TranslationModel
from jointnmt.models.ensemble import Ensemble
from jointnmt.models.interface import AttentionPart
from jointnmt.models.quantize import Precision, prepare_for_inference, warn_of_slow_products
from jointnmt.ops import adapt_waiting
from jointnmt.ops.autocast import autocast_to
from jointnmt.text.segmentation import Segmentation
from jointnmt.translator.batching import MOST_CELLS, OVERHEAD_CELLS, default_cells
from jointnmt.translator.ensemble import Member, source_readers
from jointnmt.translator.forced_decoding import ForcedDecoding, force_decode
from jointnmt.translator.options import Split
from jointnmt.translator.precision import PrecisionChoice, choose_translation_precision
from jointnmt.translator.preprocessing import EncodedSentence, Preprocessor, common_tags

ALIGNMENT: frozenset[AttentionPart] = frozenset(["alignment"])


class Inference:
    """A model, or an ensemble, with its segmentation, on its device and in its precision."""

    run: Path | None = None
    """The directory that the model was loaded from; its log has the validation scores."""

    def __init__(
        self,
        model: TranslationModel,
        segmentation: Segmentation,
        experiment: Experiment,
        precision: PrecisionChoice = "float32",
        max_cells: int | None = None,
        members: Sequence[Member] = (),
    ) -> None:
        """Prepare a model that is on its device.

        For the whole process, threads are limited to the cores available, and adapt how they wait
        (`ops.adapt_waiting`).

        Args:
            model: the model, which is put into evaluation mode. Its weights must not change afterwards, as some are
                copied (`self.model`).
            segmentation: the segmentation it was trained with.
            experiment: its configuration.
            precision: precision of the model's computations; log-probabilities are always computed in float32. int8
                quantises weights and activations of linear layers to 8 bits and computes the rest in bfloat16, on a CPU
                only. auto: float32 or bfloat16, whichever is faster here, measured once (see
                `choose_translation_precision`). A precision that is likely to be slow here is taken with a warning.
            max_cells: most cells of a batch, padding and every hypothesis of a beam included; None:
                `default_cells`.
            members: members of an `Ensemble`; the first has `segmentation` and `experiment`.

        Raises:
            ConfigurationError: if there is no such precision, or not on this device, or `max_cells` is out of range.
        """
        if precision not in (known := ("auto", *get_args(Precision))):
            raise ConfigurationError(f"precision is {precision!r}, but must be one of {', '.join(known)}.")
        adapt_waiting()
        self.segmentation, self.experiment = segmentation, experiment
        self.search = experiment.search
        """Search where options have none; settable."""
        self.device = next(model.parameters()).device
        if precision == "int8" and self.device.type != "cpu":
            raise ConfigurationError(f"precision int8 is for the CPU, not for {self.device}. Use bfloat16 or float16.")
        self.trained = model.eval()
        """The trained weights, which are saved and analysed."""
        self.members = tuple(members)
        is_grid = any(each.model.is_grid for each in self.experiments)
        if isinstance(max_cells, bool) or not isinstance(max_cells, Integral | None):
            raise TypeError(f"max_cells is {max_cells!r}, but must be an integer.")
        if max_cells is not None and not 1 <= max_cells <= MOST_CELLS:
            raise ConfigurationError(f"max_cells is {max_cells}, but must be from 1 to {MOST_CELLS}.")
        self.max_cells = max_cells or default_cells(self.device.type, is_grid)
        self.overhead_cells = OVERHEAD_CELLS
        """Fixed cost of a batch of translations, in cells; a larger one gives larger batches; settable."""
        self._readers = source_readers(segmentation, experiment, members)
        if precision == "auto":
            precision = choose_translation_precision(model, self.max_length)
        else:
            warn_of_slow_products(model, precision)
        self.precision: Precision = precision
        self.model = prepare_for_inference(model, self.precision)
        """The model prepared for inference, which translates."""

    @property
    def experiments(self) -> list[Experiment]:
        """The configuration of each model: one, or several of an ensemble."""
        return [member.experiment for member in self.members] or [self.experiment]

    @property
    def languages(self) -> tuple[str, str]:
        """Language codes of source and target."""
        return self.segmentation.languages

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that a source may begin with; of an ensemble, those that all of its models have."""
        return common_tags(self._readers)

    @property
    def max_length(self) -> int | None:
        """Most source tokens of a sentence that every model takes, end mark included; None: no limit."""
        return min((each.max_length for each in self._readers if each.max_length is not None), default=None)

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters, over all models of an ensemble."""
        return sum(parameter.numel() for parameter in self.trained.parameters())

    def description(self) -> str:
        """One line about the model: name, family, languages, parameters, precision, device."""
        runs: list[Path | None] = [*(member.run for member in self.members)] or [self.run]
        names = [run.resolve().name if run else self.experiment.name for run in runs]
        families = dict.fromkeys(each.model.family for each in self.experiments)
        return (
            f"{' + '.join(names)}: {' + '.join(families)}, {' to '.join(self.languages)}, "
            f"{self.num_parameters:,} parameters, {self.precision} on {self.device}"
        )

    def only_model(self) -> TranslationModel:
        """The single model, for inspection.

        Raises:
            ConfigurationError: if it is an ensemble.
        """
        if self.members:
            raise ConfigurationError("An ensemble cannot be inspected as one model. Use one of its runs.")
        return self.trained

    def preprocessor(self, split: Split | None = None, pieces: bool = False) -> Preprocessor:
        """The preprocessor, which turns lines into piece ids; the arguments are those of `Preprocessor`."""
        return Preprocessor(self.segmentation, self._readers, split, pieces)

    def reading(self, sentences: Sequence[EncodedSentence]) -> TranslationModel:
        """The model, ready to be called with the sources of these sentences."""
        if len(self._readers) == 1:
            return self.model
        assert isinstance(self.model, Ensemble)
        each = zip(*([sentence.source, *sentence.other_sources] for sentence in sentences), strict=True)
        return self.model.reading([collate_sources(ids).to(self.device) for ids in each])

    @property
    def can_align(self) -> bool:
        """Whether translations can be aligned: False for an ensemble whose models read different pieces."""
        return len(self._readers) == 1

    def check_can_align(self) -> None:
        """Check that translations can be aligned.

        Raises:
            ConfigurationError: if the models of an ensemble segment sources into different pieces.
        """
        if not self.can_align:
            raise ConfigurationError(
                "The models of this ensemble segment sources into different pieces, so their alignments cannot be "
                "averaged. Align with one of them."
            )

    def force_decode(
        self, rows: Sequence[tuple[EncodedSentence, Sequence[int]]], wanted: frozenset[AttentionPart] = ALIGNMENT
    ) -> list[ForcedDecoding]:
        """The alignment and the gates, as `wanted`, of sentences with the ids of their translations.

        Raises:
            ConfigurationError: if the models of an ensemble segment sources into different pieces.
        """
        self.check_can_align()
        return force_decode(self.model, rows, wanted)

    def autocast(self) -> torch.autocast:
        """The context in which `model` computes in the translator's precision."""
        return autocast_to(self.precision, self.device)
