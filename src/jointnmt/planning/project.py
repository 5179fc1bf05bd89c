"""A folder of one's own: parts of the text, and a recipe sized for it, from checked texts."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from jointnmt.data.lines import text_lines
from jointnmt.data.quality.check import CheckedText
from jointnmt.data.quality.clean import REMOVED, check_not_read, write_pairs, write_removed
from jointnmt.experiment import Experiment
from jointnmt.planning.parts import CorpusParts, write_parts
from jointnmt.planning.recipe import recipe_text
from jointnmt.planning.sizing import CorpusCounts, Family, Machine, Plan, plan, size_for
from jointnmt.planning.speed import machine as this_machine
from jointnmt.planning.speed import measure_speed
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation

logger = logging.getLogger(__name__)

RECIPE, DATA = "recipe.yaml", "data"

MOST_SEGMENTED = 200_000
"""Pairs that pieces are counted on, evenly spread over a larger corpus."""

SAMPLE = 4000
"""Pairs that speed is measured on."""


@dataclass(frozen=True)
class Project:
    """What `write_project` made."""

    directory: Path
    parts: CorpusParts
    corpus: CorpusCounts
    machine: Machine
    plan: Plan
    seconds: float
    """Estimated time of the whole training, validations included, by what was measured."""

    @property
    def family(self) -> str:
        """The family of the model."""
        return str(self.plan.values["model"]["family"])

    @property
    def recipe(self) -> Path:
        """The recipe's file."""
        return self.directory / RECIPE


def write_project(
    checked: Sequence[CheckedText], directory: Path, languages: tuple[str, str], family: Family, seed: int
) -> Project:
    """Write the parts of the text and a recipe for it, with the speed of this machine measured.

    Raises:
        DataError: if there are too few pairs.
        ConfigurationError: if a checked file would be written over.
    """
    check_not_read([directory / REMOVED, directory / RECIPE], checked)
    parts = write_parts(checked, directory / DATA, languages, seed)
    write_removed(checked, directory / REMOVED)
    name = directory.resolve().name or "mine"
    with tempfile.TemporaryDirectory() as scratch:
        segmentation, corpus = _segmented(parts)
        machine, translation = _measured(name, parts, corpus, segmentation, family, Path(scratch))
    chosen = plan(corpus, machine, family)
    (directory / RECIPE).write_text(
        recipe_text(name, parts, corpus, chosen, machine, seed), encoding="utf-8", newline="\n"
    )
    Experiment.load(directory / RECIPE)  # or it is an error here, not later
    rules = chosen.values["validation"]
    validations = chosen.updates // rules["every_updates"] * min(parts.pairs["valid"], rules["bleu_sentences"])
    return Project(directory, parts, corpus, machine, chosen, (chosen.seconds or 0) + validations * translation)


def _segmented(parts: CorpusParts) -> tuple[Segmentation, CorpusCounts]:
    """A segmentation of the size for this corpus, and what it counts in the text."""
    pairs, words = parts.pairs["train"], parts.words
    config = SegmentationConfig(joint=True, vocabulary_size=size_for(words).vocabulary, split_punctuation=True)
    text = list(islice(_pairs(parts), 0, None, 1 + pairs // MOST_SEGMENTED))
    sides = tuple(list(side) for side in zip(*text, strict=True))
    segmentation = Segmentation.train(config, sides[0], sides[1], *parts.languages)
    sources, targets = segmentation.source.encode_ids_batch(sides[0]), segmentation.target.encode_ids_batch(sides[1])
    pieces = round(sum(len(ids) + 1 for ids in targets) * pairs / len(text))
    longest = max(len(ids) + 1 for ids in (*sources, *targets))
    return segmentation, CorpusCounts(pairs, words, pieces, longest)


def _pairs(parts: CorpusParts) -> Iterator[tuple[str, str]]:
    source, target = parts.paths("train")
    yield from zip(text_lines(source), text_lines(target), strict=True)


def _measured(
    name: str, parts: CorpusParts, corpus: CorpusCounts, segmentation: Segmentation, family: Family, scratch: Path
) -> tuple[Machine, float]:
    """This machine with the rates of the planned model, and the seconds that a sentence takes in a validation."""
    logger.info("measuring how fast this machine trains a model of this size")
    here = this_machine()
    values: dict[str, Any] = dict(plan(corpus, here, family).values)
    step = max(1, corpus.pairs // SAMPLE)
    write_pairs(islice(_pairs(parts), 0, None, step), (scratch / "train.source", scratch / "train.target"))
    source, target = parts.paths("valid")
    values["data"] = {
        "root": str(scratch),
        "source_language": parts.languages[0],
        "target_language": parts.languages[1],
        "train": [{"source": "train.source", "target": "train.target"}],
        "validation": [{"source": str(source.resolve()), "target": str(target.resolve())}],
        "filters": {"max_length": values["model"]["max_length"]},
    }
    experiment = Experiment.parse({"name": name, **values}, origin="the planned recipe")
    speed = measure_speed(experiment, segmentation, scratch / "cache")
    return replace(here, rates=speed.rates), speed.translation
