"""A user's project folder: parts of the checked text, and a recipe sized for it."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from jointnmt.data.quality.check import CheckedText
from jointnmt.data.quality.clean import REMOVED, check_not_read, write_pairs, write_removed
from jointnmt.experiment import Experiment
from jointnmt.files import publish, write_text
from jointnmt.planning.holdout import TRAIN
from jointnmt.planning.parts import CorpusParts, divide, write_parts
from jointnmt.planning.recipe import recipe_text
from jointnmt.planning.sizing import CorpusCounts, Machine, Plan, PlannedFamily, max_length, plan, size_for
from jointnmt.planning.speed import Speed, measure_speed
from jointnmt.planning.speed import machine as this_machine
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.special import num_tokens

logger = logging.getLogger(__name__)

RECIPE, DATA = "recipe.yaml", "data"

MOST_SEGMENTED = 200_000
"""Most pairs on which pieces are counted, evenly spread over a larger corpus."""

SAMPLE = 4000
"""Number of pairs on which speed is measured."""


@dataclass(frozen=True)
class Project:
    """Result of `write_project`."""

    directory: Path
    parts: CorpusParts
    too_long: int
    """Number of pairs left out, as they have more pieces than the model takes."""
    corpus: CorpusCounts
    machine: Machine
    plan: Plan
    seconds: float
    """Estimated time of the whole training, validations included, from the measured speed."""

    @property
    def family(self) -> str:
        """The family of the model."""
        return str(self.plan.values["model"]["family"])

    @property
    def recipe(self) -> Path:
        """The recipe's file."""
        return self.directory / RECIPE


def write_project(
    checked: Sequence[CheckedText], directory: Path, languages: tuple[str, str], family: PlannedFamily, seed: int
) -> Project:
    """Write the parts of the text and a recipe for it, with the speed of this machine measured.

    Pairs that are in no part get their problems, `long` or `overlap`, and are in `removed.tsv` with the others.

    Raises:
        DataError: if there are too few pairs.
        ConfigurationError: if a checked file would be overwritten.
    """
    check_not_read([directory / REMOVED, directory / RECIPE], checked)
    good = sum(int(text.good.sum()) for text in checked)
    parts, segmentation, corpus = _divided(checked, directory / DATA, languages, seed)
    too_long = good - sum(int(text.good.sum()) for text in checked)
    sample = islice(_train_pairs(parts, checked), 0, None, math.ceil(corpus.pairs / SAMPLE))
    name = directory.resolve().name or "mine"
    with _published_at_the_end(directory) as new, tempfile.TemporaryDirectory() as scratch:
        unpublished = replace(parts, directory=new / DATA)
        write_pairs(sample, (Path(scratch) / "train.source", Path(scratch) / "train.target"))
        write_parts(unpublished, checked)
        write_removed(checked, new / REMOVED)
        machine, speed = _measured(name, unpublished, corpus, segmentation, family, Path(scratch))
        chosen = plan(corpus, machine, family)
        write_text(new / RECIPE, recipe_text(name, parts, corpus, chosen, machine, seed))
        Experiment.load(new / RECIPE)  # so that an error shows here, not later
    rules = chosen.values["validation"]
    translated = min(parts.pairs["valid"], rules["bleu_sentences"])
    validations = chosen.updates // rules["every_updates"] * (speed.validation + translated * speed.translation)
    seconds = (chosen.seconds or 0) + validations
    return Project(directory, parts, too_long, corpus, machine, chosen, seconds)


@contextmanager
def _published_at_the_end(directory: Path) -> Iterator[Path]:
    """A folder in `directory` whose files get their places there at the end; after an error, nothing has changed."""
    made = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=directory))
    try:
        yield new
        for path in [each for each in new.rglob("*") if each.is_file()]:
            place = directory / path.relative_to(new)
            place.parent.mkdir(exist_ok=True)
            publish(path, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        with suppress(OSError):  # not empty: the folders stay
            for each in made:
                each.rmdir()


def _divided(
    checked: Sequence[CheckedText], directory: Path, languages: tuple[str, str], seed: int
) -> tuple[CorpusParts, Segmentation, CorpusCounts]:
    """The parts, with pairs that are not too long for the recipe's model, a segmentation, and its counts in the text.

    Longer pairs are marked, and the others divided again, until there are none: training learns its pieces from the
    written text, so they are learnt from the same text here.
    """
    while True:
        parts = divide(checked, directory, languages, seed)
        segmentation, corpus = _segmented(parts, checked)
        if not _mark_long(checked, segmentation, max_length(corpus)):
            return parts, segmentation, corpus


def _mark_long(checked: Sequence[CheckedText], segmentation: Segmentation, limit: int) -> bool:
    """Mark good pairs with more pieces than the limit on a side as `long`; returns whether there are any."""
    found = False
    for text in checked:
        good, long = np.flatnonzero(text.good), np.zeros(len(text), bool)
        long[good] = [
            _is_longer(segmentation.source, pair.source, limit) or _is_longer(segmentation.target, pair.target, limit)
            for pair in text.good_pairs()
        ]
        text.mark(long, "long")
        found = found or bool(long.any())
    return found


def _is_longer(segmenter: Segmenter, text: str, limit: int) -> bool:
    """Whether a sentence has more pieces than a limit, end mark included; every piece has at least one character."""
    most = len(unicodedata.normalize("NFC", text)) + 2  # the mark of its first word, and the end mark
    return most > limit and num_tokens(segmenter.encode_ids(text)) > limit


def _segmented(parts: CorpusParts, checked: Sequence[CheckedText]) -> tuple[Segmentation, CorpusCounts]:
    """A segmentation of the size for this corpus, and its counts in the text."""
    pairs, words = parts.pairs["train"], parts.words
    text = list(islice(_train_pairs(parts, checked), 0, None, math.ceil(pairs / MOST_SEGMENTED)))
    sides = tuple(list(side) for side in zip(*text, strict=True))
    characters = len({character for side in sides for sentence in side for character in sentence})
    size = size_for(words, characters).vocabulary
    config = SegmentationConfig(joint=True, vocabulary_size=size, split_punctuation=True)
    segmentation = Segmentation.train(config, sides[0], sides[1], *parts.languages)
    sources, targets = segmentation.source.encode_ids_batch(sides[0]), segmentation.target.encode_ids_batch(sides[1])
    pieces = round(sum(map(num_tokens, targets)) * pairs / len(text))
    longest = max(map(num_tokens, (*sources, *targets)))
    return segmentation, CorpusCounts(pairs, words, pieces, longest, characters)


def _train_pairs(parts: CorpusParts, checked: Sequence[CheckedText]) -> Iterator[tuple[str, str]]:
    return (pair for part, pair in parts.pairs_with_parts(checked) if part == TRAIN)


def _measured(
    name: str,
    parts: CorpusParts,
    corpus: CorpusCounts,
    segmentation: Segmentation,
    family: PlannedFamily,
    scratch: Path,
) -> tuple[Machine, Speed]:
    """This machine with the rates of the planned model, and the measured speed of validation.

    `scratch` has a sample of the training text.
    """
    logger.info("measuring how fast this machine trains a model of this size")
    here = this_machine()
    values: dict[str, Any] = dict(plan(corpus, here, family).values)
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
    return replace(here, rates=speed.rates), speed
