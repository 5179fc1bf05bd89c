"""A user's project folder: parts of the checked text, and a recipe sized for it."""

from __future__ import annotations

import errno
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

import numpy as np

from jointnmt.data.quality.check import CheckedText
from jointnmt.data.quality.clean import REMOVED, UNFINISHED, check_not_read, write_pairs, write_removed
from jointnmt.experiment import Experiment
from jointnmt.files import publish, write_text
from jointnmt.planning.approaches import Approach, learnt_pairs
from jointnmt.planning.parts import CorpusParts, divide, write_parts
from jointnmt.planning.sizing import CorpusCounts, Machine
from jointnmt.planning.speed import Speed, measure_speed
from jointnmt.planning.speed import machine as this_machine
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.special import num_tokens

logger = logging.getLogger(__name__)

RECIPE, DATA = "recipe.yaml", "data"

MANY_UNKNOWN = 0.002
"""Share of unknown pieces in a text from which on there is a warning."""

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
    experiment: Experiment
    """The recipe."""
    vocabulary: int
    """Number of target pieces."""
    updates: int
    """Most updates of the training."""
    seconds: float
    """Estimated time of all of them, validations included, from the measured speed."""

    @property
    def recipe(self) -> Path:
        """The recipe's file."""
        return self.directory / RECIPE


def write_project(
    checked: Sequence[CheckedText], directory: Path, languages: tuple[str, str], approach: Approach, seed: int
) -> Project:
    """Write the parts of the text and a recipe for it, with the speed of this machine measured.

    Pairs that are in no part get their problems, `long` or `overlap`, and are in `removed.tsv` with the others.

    Raises:
        DataError: if there are too few pairs.
        ConfigurationError: if a checked file would be overwritten, or the model to start from has other languages.
        ModelError: if the model to start from is missing or damaged.
    """
    check_not_read([directory / REMOVED, directory / RECIPE], checked)
    languages = approach.languages(languages)
    good = sum(int(text.good.sum()) for text in checked)
    parts, segmentation, corpus = _divided(checked, directory / DATA, languages, approach, seed)
    if corpus.unknown > MANY_UNKNOWN:
        logger.warning(
            "%.1f%% of the pieces of your text are unknown to the model: it neither reads nor writes them",
            100 * corpus.unknown,
        )
    too_long = good - sum(int(text.good.sum()) for text in checked)
    sample = list(islice(learnt_pairs(parts, checked), 0, None, math.ceil(corpus.pairs / SAMPLE)))
    name = directory.resolve().name or "mine"
    with _published_at_the_end(directory) as new:
        unpublished = replace(parts, directory=new / DATA)
        write_parts(unpublished, checked)
        write_removed(checked, new / REMOVED)
        machine, speed = _measured(unpublished, sample, corpus, segmentation, approach)
        write_text(new / RECIPE, approach.recipe(name, parts, corpus, machine, seed))
        Experiment.load(new / RECIPE)  # so that an error shows before anything is published
    experiment = Experiment.load(directory / RECIPE)
    updates = _updates(experiment, corpus)
    seconds = _seconds(experiment, corpus, updates, machine, speed, parts.pairs["valid"])
    vocabulary = segmentation.target.vocabulary_size
    return Project(directory, parts, too_long, corpus, machine, experiment, vocabulary, updates, seconds)


@contextmanager
def _published_at_the_end(directory: Path) -> Iterator[Path]:
    """A folder in `directory` whose files get their places there at the end, the recipe last.

    After an error before that, nothing has changed; what a killed process has left there is deleted.
    """
    made = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=directory))
    try:
        yield new
        for path in sorted((each for each in new.rglob("*") if each.is_file()), key=lambda path: path.name == RECIPE):
            place = (directory / path.relative_to(new)).resolve()
            place.parent.mkdir(exist_ok=True)
            _publish(path, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        with suppress(OSError):  # not empty: the folders stay
            for each in made:
                each.rmdir()


def _publish(path: Path, place: Path) -> None:
    """Give a file its place, also on another disk, as where a folder is a link."""
    try:
        publish(path, place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = place.with_name(f".{place.name}.new")
        shutil.copyfile(path, beside)
        publish(beside, place)


def _divided(
    checked: Sequence[CheckedText], directory: Path, languages: tuple[str, str], approach: Approach, seed: int
) -> tuple[CorpusParts, Segmentation, CorpusCounts]:
    """The parts, with pairs that are not too long for the recipe's model, a segmentation, and its counts in the text.

    Longer pairs are marked, and the others divided again, until there are none: training may learn its pieces from the
    written text, so they are learnt from the same text here.
    """
    while True:
        parts = divide(checked, directory, languages, seed, approach.fewest_pairs, approach.advice)
        segmentation, corpus = approach.segment(parts, checked)
        limit = approach.max_length(corpus)
        if limit is None or not _mark_long(checked, segmentation, limit):
            return parts, segmentation, corpus


def _mark_long(checked: Sequence[CheckedText], segmentation: Segmentation, limit: int) -> bool:
    """Mark good pairs with more pieces than the limit on a side as `long`; returns whether there are any."""
    config, found = segmentation.config, False
    may_grow = config.moses or config.normalize_punctuation
    for text in checked:
        good, long = np.flatnonzero(text.good), np.zeros(len(text), bool)
        long[good] = [
            any(
                (may_grow or _most_pieces(sentence) > limit) and num_tokens(side.encode_ids(sentence)) > limit
                for side, sentence in ((segmentation.source, pair.source), (segmentation.target, pair.target))
            )
            for pair in text.good_pairs()
        ]
        text.mark(long, "long")
        found = found or bool(long.any())
    return found


def _most_pieces(text: str) -> int:
    """Most pieces of a sentence, end mark included, without Moses's rules: each has at least one character."""
    return len(unicodedata.normalize("NFC", text)) + 2  # the mark of its first word, and the end mark


def _measured(
    parts: CorpusParts,
    sample: Sequence[tuple[str, str]],
    corpus: CorpusCounts,
    segmentation: Segmentation,
    approach: Approach,
) -> tuple[Machine, Speed]:
    """This machine with the rates of the planned model on pairs of the training text, and its speed of validation."""
    logger.info("measuring how fast this machine trains a model of this size")
    here, (source, target) = this_machine(), parts.paths("valid")
    with tempfile.TemporaryDirectory() as scratch:
        write_pairs(sample, (Path(scratch) / "train.source", Path(scratch) / "train.target"))
        data = {
            "root": scratch,
            "source_language": parts.languages[0],
            "target_language": parts.languages[1],
            "train": [{"source": "train.source", "target": "train.target"}],
            "validation": [{"source": str(source.resolve()), "target": str(target.resolve())}],
            "filters": {"max_length": approach.max_length(corpus)},
        }
        experiment = Experiment.load({"name": "speed", "data": data, **approach.values(corpus, here)})
        speed = measure_speed(experiment, segmentation, Path(scratch) / "cache")
    return replace(here, rates=speed.rates), speed


def _updates(experiment: Experiment, corpus: CorpusCounts) -> int:
    """Most updates of a training on this text."""
    epochs = experiment.training.max_epochs
    end = experiment.training.planned_end(None if epochs is None else epochs * _epoch(experiment, corpus))
    assert end is not None  # as all approaches say when to end
    return end


def _epoch(experiment: Experiment, corpus: CorpusCounts) -> int:
    return math.ceil(corpus.pieces / experiment.batches.update_tokens)


def _seconds(
    experiment: Experiment, corpus: CorpusCounts, updates: int, machine: Machine, speed: Speed, valid: int
) -> float:
    """Estimated time of so many updates, and of the validations, on text of `valid` pairs, in between."""
    rules = experiment.validation
    validations = updates // (rules.every_updates or rules.every_epochs * _epoch(experiment, corpus))
    measured = validations // rules.bleu_every if rules.bleu_every else 0
    translated = measured * min(valid, rules.bleu_sentences or valid)
    training = updates * experiment.batches.update_tokens / machine.rates[machine.precision]
    return training + validations * speed.validation + translated * speed.translation
