"""How the model of a project is trained: from scratch, at a size that suits the text, or from a trained model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Protocol

from jointnmt.data.quality.check import CheckedText
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.planning.parts import CorpusParts
from jointnmt.planning.recipe import recipe_text, tuning_text
from jointnmt.planning.sizing import CorpusCounts, Machine, PlannedFamily, max_length, plan, size_for
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.loading import read_experiment
from jointnmt.shipped import is_shipped, locate_run
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.languages import base_language
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.special import num_tokens, unk_id

MOST_SEGMENTED = 200_000
"""Most pairs on which pieces are counted, evenly spread over a larger corpus."""


class Approach(Protocol):
    """How the model of a project is trained."""

    fewest_pairs: ClassVar[int]
    """Fewest training pairs."""
    advice: ClassVar[str]
    """What to do about too few."""

    def languages(self, of_text: tuple[str, str]) -> tuple[str, str]:
        """The languages of the training for a text in these languages, source and target.

        Raises:
            ConfigurationError: if such a text cannot be learnt.
        """

    def segment(self, parts: CorpusParts, checked: Sequence[CheckedText]) -> tuple[Segmentation, CorpusCounts]:
        """A segmentation for the training text, and the text's counts by it."""

    def max_length(self, corpus: CorpusCounts) -> int | None:
        """Most pieces of a sentence that the model takes, end mark included; None: any number."""

    def values(self, corpus: CorpusCounts, machine: Machine) -> Mapping[str, Any]:
        """The recipe, except its name and its data."""

    def recipe(self, name: str, parts: CorpusParts, corpus: CorpusCounts, machine: Machine, seed: int) -> str:
        """The recipe as commented YAML."""


@dataclass(frozen=True)
class FromScratch:
    """A new model of a size that suits the text."""

    family: PlannedFamily
    longer: bool = False
    """Whether to train for longer, for better translations."""
    fewest_pairs: ClassVar[int] = 500
    """With fewer, a model learns nothing."""
    advice: ClassVar[str] = "Add text, or start from a trained model (--start-from RUN)."

    def languages(self, of_text: tuple[str, str]) -> tuple[str, str]:
        """Those of the text."""
        return of_text

    def segment(self, parts: CorpusParts, checked: Sequence[CheckedText]) -> tuple[Segmentation, CorpusCounts]:
        """A segmentation learnt from the text, of the size for this corpus, and its counts."""
        sources, targets = _sides(parts, checked)
        characters = len({character for sentence in chain(sources, targets) for character in sentence})
        size = size_for(parts.words, characters).vocabulary
        config = SegmentationConfig(joint=True, vocabulary_size=size, split_punctuation=True, split_digits=True)
        segmentation = Segmentation.train(config, sources, targets, *parts.languages)
        return segmentation, _counts(parts, segmentation, sources, targets, characters)

    def max_length(self, corpus: CorpusCounts) -> int | None:
        """Some more than the training text has."""
        return max_length(corpus)

    def values(self, corpus: CorpusCounts, machine: Machine) -> Mapping[str, Any]:
        """The plan's values."""
        return plan(corpus, machine, self.family, self.longer).values

    def recipe(self, name: str, parts: CorpusParts, corpus: CorpusCounts, machine: Machine, seed: int) -> str:
        """The plan's recipe, with a comment on each value."""
        return recipe_text(name, parts, corpus, plan(corpus, machine, self.family, self.longer), machine, seed)


@dataclass(frozen=True)
class FineTuning:
    """Some more training of a trained model, with its sizes and its segmentation."""

    start: Path
    """RUN of the model, a shared folder, or `package:NAME`."""
    fewest_pairs: ClassVar[int] = 100
    """With fewer, hardly anything changes."""
    advice: ClassVar[str] = "Add text."

    def check(self) -> None:
        """Check before any work that there is such a model.

        Raises:
            ModelError: if it is missing or damaged.
        """
        files = RunDirectory(self.start)
        read_experiment(self.start)
        Segmentation.load(files.segmentation)
        if not files.model.is_file():
            raise ModelError(f"{self.start}: has no weights ({files.model.name} is missing). Name a trained model.")

    def languages(self, of_text: tuple[str, str]) -> tuple[str, str]:
        """Those of the model, which are those of the text except for their regions."""
        data = read_experiment(self.start).data
        known = data.source_language, data.target_language
        if tuple(map(base_language, known)) != tuple(map(base_language, of_text)):
            raise ConfigurationError(
                f"--start-from {self.start}: translates {known[0]} to {known[1]}, but your text is {of_text[0]} to "
                f"{of_text[1]}. Name another model, or other languages (--source, --target)."
            )
        return known

    def segment(self, parts: CorpusParts, checked: Sequence[CheckedText]) -> tuple[Segmentation, CorpusCounts]:
        """The model's segmentation, and its counts in the text."""
        segmentation = Segmentation.load(RunDirectory(self.start).segmentation)
        return segmentation, _counts(parts, segmentation, *_sides(parts, checked))

    def max_length(self, corpus: CorpusCounts) -> int | None:
        """As many as the model takes."""
        return read_experiment(self.start).model.max_length

    def values(self, corpus: CorpusCounts, machine: Machine) -> Mapping[str, Any]:
        """The model; `package:fine-tuning` has everything else."""
        return {"extends": "package:fine-tuning", "training": {"from": str(locate_run(self.start).resolve())}}

    def recipe(self, name: str, parts: CorpusParts, corpus: CorpusCounts, machine: Machine, seed: int) -> str:
        """A short recipe, which names the model."""
        start = str(self.start if is_shipped(self.start) else self.start.resolve())
        return tuning_text(name, parts, corpus, start, self.max_length(corpus), seed)


def learnt_pairs(parts: CorpusParts, checked: Sequence[CheckedText]) -> Iterator[tuple[str, str]]:
    """The pairs of the training text, and the copies of some."""
    return chain(parts.train_pairs(checked), *(copies.pairs for copies in parts.copies))


def _sides(parts: CorpusParts, checked: Sequence[CheckedText]) -> tuple[list[str], list[str]]:
    """Sources and targets of the training text, or of a sample of it."""
    text = list(islice(learnt_pairs(parts, checked), 0, None, math.ceil(parts.pairs["train"] / MOST_SEGMENTED)))
    return [source for source, _ in text], [target for _, target in text]


def _counts(
    parts: CorpusParts, segmentation: Segmentation, sources: list[str], targets: list[str], characters: int = 0
) -> CorpusCounts:
    """Counts of the training text, given these sides of it or of a sample."""
    source_ids, target_ids = (
        side.encode_ids_batch(texts) for side, texts in ((segmentation.source, sources), (segmentation.target, targets))
    )
    learnt = parts.pairs["train"] + sum(len(copies.pairs) for copies in parts.copies)
    pieces = round(sum(map(num_tokens, target_ids)) * learnt / len(target_ids))
    longest = max(map(num_tokens, (*source_ids, *target_ids)))
    unknown = sum(ids.count(unk_id) for ids in (*source_ids, *target_ids))
    total = sum(map(len, (*source_ids, *target_ids)))
    return CorpusCounts(parts.pairs["train"], parts.words, pieces, longest, characters, unknown / max(total, 1))
