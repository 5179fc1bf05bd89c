"""The segmentation of a training, stored in RUN: learnt from its text, or copied from the model that it starts from."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

from jointnmt.data.filters import FilterReport
from jointnmt.data.pairs import Pair, read_pairs
from jointnmt.experiment import Experiment
from jointnmt.files import hash_file
from jointnmt.runs.directory import RunDirectory
from jointnmt.text.segmentation import Segmentation, hash_files
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.progress import Display, shown

logger = logging.getLogger(__name__)

TELL_EVERY = 1000
"""Sentence pairs between calls of a display while text is read."""


def prepare_segmentation(experiment: Experiment, directory: TrainingDirectory, display: Display) -> None:
    """Learn the segmentation of an experiment, or make it of given merges, into its RUN directory, or copy that of the
    model it starts from.

    An existing one is kept if a training has begun with it, or if it was made from the same inputs.

    Raises:
        DataError: if the text or a file of given merges cannot be read, or such a file has changed since the training
            began.
        ModelError: if the model to start from has no segmentation.
    """
    given = _given(experiment)
    if directory.is_trained() and directory.segmentation.exists():
        directory.check_given(given)
        return
    made_of = _made_of(experiment)
    if directory.holds_segmentation_of(made_of):
        logger.info("%s: reusing its segmentation", directory.path)
        return
    shutil.rmtree(directory.segmentation, ignore_errors=True)
    start = experiment.training.start
    segmentation = _learn(experiment, display) if start is None else Segmentation.load(RunDirectory(start).segmentation)
    directory.save_segmentation(segmentation, made_of, given)


def _made_of(experiment: Experiment) -> str:
    """Hash of the inputs of the segmentation; empty if a text cannot be read, which is reported later."""
    data, start = experiment.data, experiment.training.start
    if start is not None:
        return hash_files(RunDirectory(start).segmentation)
    texts = [data.place(text) for text in data.train]
    try:
        contents = [[f"{path.suffix}:{hash_file(path)}" for path in text.files] for text in texts]
    except OSError:
        return ""
    given = _given(experiment)
    facts = {
        "versions": [version(package) for package in ("jointnmt", "tokenizers")],
        "languages": [data.source_language, data.target_language],
        "segmentation": experiment.segmentation.plain() | ({"given": given} if given else {}),
        "filters": data.filters.plain(),
        "texts": [[text.format, text.fields, text.tag, files] for text, files in zip(texts, contents, strict=True)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _given(experiment: Experiment) -> str:
    """Hash of the files of given merges; empty if there are none, or one cannot be read, as on resumption elsewhere."""
    if experiment.training.start is not None:
        return ""
    try:
        hashes = [hash_file(path) for path in experiment.segmentation.files]
    except OSError:
        return ""
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest() if hashes else ""


def _learn(experiment: Experiment, display: Display) -> Segmentation:
    data = experiment.data
    codes = experiment.segmentation.codes
    logger.info("training the segmentation" if codes is None else f"making the segmentation by {codes}")
    sources, targets = (read_pairs(data.train, data, FilterReport()) for _ in range(2))  # the store reports
    return Segmentation.train(
        experiment.segmentation,
        (pair.source for pair in _counted(sources, shown(display, "reading the source"))),
        (pair.target for pair in _counted(targets, shown(display, "reading the target"))),
        data.source_language,
        data.target_language,
    )


def _counted(pairs: Iterable[Pair], progress: Callable[[int], None]) -> Iterator[Pair]:
    for number, pair in enumerate(pairs, start=1):
        if number % TELL_EVERY == 0:
            progress(number)
        yield pair
