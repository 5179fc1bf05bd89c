"""What a run makes of a text, translations and predictions of the references, kept so that nothing is done twice."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from jointnmt.analysis.corpus import Predictions
from jointnmt.data.store import build_store, cache_folder
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.evaluation.scores import check_parallel
from jointnmt.text.special import eos_id
from jointnmt.translator import TranslationOptions, Translator
from jointnmt.translator.parts import Line, Preparation

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
"""Part of a measurement's fingerprint."""
WINDOW = 128
"""Sentences translated at a time: what an interruption may lose."""

Progress = Callable[[str, int, int], None]
"""Is told what is going on, how many sentences are done, and of how many."""


@dataclass(frozen=True)
class Texts:
    """Sources with one reference translation each."""

    sources: Sequence[str]
    references: Sequence[str]
    source_name: str
    """The file, for messages."""
    reference_name: str

    def __post_init__(self) -> None:
        check_parallel(self.sources, self.references, self.source_name, self.reference_name)


@dataclass(frozen=True)
class Measured:
    """What a run makes of texts."""

    name: str
    languages: tuple[str, str]
    """Of source and target."""
    lowercase: bool
    """Whether it writes lower case only."""
    translations: Sequence[str]
    cut: int
    """How many translations reached the greatest length allowed."""
    log_probabilities: Sequence[float]
    """Of each reference, given its source."""
    hits: Sequence[Sequence[bool]]
    """Of each token of each reference, end marks included: whether it is what the run finds most probable there."""
    target_ids: Sequence[Sequence[int]]
    """These tokens."""

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability of the references' tokens, end marks included, teacher-forced."""
        tokens = sum(map(len, self.hits))
        return math.exp(min(-math.fsum(self.log_probabilities) / max(tokens, 1), 700.0))

    def predictions(self, counts: Sequence[int] | None) -> Predictions:
        """Hits with the training frequencies of their tokens; with no `counts`, all frequencies are 0."""
        frequencies = [[0 if counts is None else counts[i] for i in row] for row in self.target_ids]
        return Predictions(self.hits, frequencies)


def ignores_case(runs: Sequence[Measured]) -> bool:
    """Whether the runs are to be compared without regard to case: one of them writes lower case only."""
    return any(run.lowercase for run in runs)


def run_name(run: Path) -> str:
    """What a run is called: by its folder."""
    return run.name or run.resolve().name


def check_runs(runs: Sequence[Path]) -> None:
    """See that runs can be told apart by their names.

    Raises:
        ConfigurationError: if two have the same.
    """
    if len({run_name(run) for run in runs}) < len(runs):
        raise ConfigurationError("Two runs have the same name, and a figure could not tell them apart. Rename one.")


def translator_languages(translator: Translator) -> tuple[str, str]:
    """The languages of source and target."""
    return translator.segmentation.source.language, translator.segmentation.target.language


def common_languages(systems: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The languages of source and target.

    Raises:
        ConfigurationError: if not all systems have the same.
    """
    if len(set(systems)) > 1:
        raise ConfigurationError(f"The runs are not of the same languages: {', '.join(map('-'.join, systems))}.")
    return systems[0]


def measure(translator: Translator, run: Path, texts: Texts, progress: Progress) -> Measured:
    """Translate the sources and predict the references, or go on where an earlier try was interrupted.

    Results are kept in the cache (`measured/`, by a hash of weights, configuration, segmentation and texts), a line a
    sentence, as they come.

    Raises:
        DataError: naming the line, if a source is too long for the model, or empty while its reference is not.
        ConfigurationError: if the cache cannot be written.
    """
    name = run_name(run)
    pairs = zip(texts.sources, texts.references, strict=True)
    lines = [Line(i, f"{texts.source_name}:{i}", *pair) for i, pair in enumerate(pairs, start=1)]
    prepared = Preparation(translator.segmentation, translator.experiment.model.max_length).parts(lines)
    folder = cache_folder(translator.experiment.data) / "measured" / _fingerprint(translator, run, texts)[:32]

    def translations(start: int) -> Iterator[dict[str, Any]]:
        for found in translator.translate_stream(texts.sources[start:], TranslationOptions(window=WINDOW)):
            complete = not found.candidates or found.candidates[0].complete
            yield {"text": found.text, "complete": complete}

    def predictions(start: int) -> Iterator[dict[str, Any]]:
        for score in translator.score_stream(texts.sources[start:], texts.references[start:]):
            yield {"log_probability": score.log_probability, "hits": [*map(int, score.first_choices)]}

    total = len(lines)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            translated = _kept(folder / "translations.jsonl", total, translations, f"{name}: translating", progress)
            predicted = _kept(folder / "predictions.jsonl", total, predictions, f"{name}: predicting", progress)
    except OSError as error:
        raise ConfigurationError(
            f"{folder}: measurements cannot be kept here: {error}. Set data.cache or the environment variable "
            "JOINTNMT_CACHE to a folder with room that you may write to."
        ) from error
    return Measured(
        name=name,
        languages=translator_languages(translator),
        lowercase=translator.segmentation.config.lowercase,
        translations=[each["text"] for each in translated],
        cut=sum(not each["complete"] for each in translated),
        log_probabilities=[each["log_probability"] for each in predicted],
        hits=[[*map(bool, each["hits"])] for each in predicted],
        target_ids=[(*parts[0].target, eos_id) if parts else () for parts in prepared],
    )


def training_counts(translator: Translator, run: Path) -> list[int] | None:
    """How often each target piece stands in the run's training text; the end mark, once a sentence.

    None, and a warning, if the training text is not where the run's configuration says.
    """
    try:
        store = build_store(translator.experiment.data, translator.segmentation, "train")
    except (ConfigurationError, DataError) as error:
        logger.warning(
            "%s: is left out of accuracy by frequency, for want of its training text: %s", run_name(run), error
        )
        return None
    counts = np.zeros(translator.segmentation.target.vocabulary_size, dtype=np.int64)
    for start in range(0, len(store), 10_000):
        pairs = store.pairs(range(start, min(start + 10_000, len(store))))
        counts += np.bincount([*chain.from_iterable(target for _, target in pairs)], minlength=len(counts))
    counts[eos_id] = len(store)
    return [int(count) for count in counts]


def _fingerprint(translator: Translator, run: Path, texts: Texts) -> str:
    with (run / "model.safetensors").open("rb") as stream:
        weights = hashlib.file_digest(stream, "sha256").hexdigest()
    facts = {
        "format": FORMAT_VERSION,
        "weights": weights,
        "model": translator.experiment.model.plain(),
        "search": translator.experiment.search.plain(),
        "segmentation": translator.segmentation.fingerprint(),
        "sources": list(texts.sources),
        "references": list(texts.references),
        "computed": [translator.device.type, translator.precision, version("torch"), version("jointnmt")],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _kept(
    file: Path, total: int, compute: Callable[[int], Iterator[dict[str, Any]]], what: str, progress: Progress
) -> list[dict[str, Any]]:
    """The records in a file, and those that are still to be computed, from the first missing one on."""
    records, size = _whole_records(file)
    if len(records) == total:
        logger.debug("%s: was done earlier (%s)", what, file)
        return records
    if records:
        logger.info("%s: goes on after %d of %d sentences", what, len(records), total)
    with file.open("ab") as stream:
        stream.truncate(size)
        for record in compute(len(records)):
            stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            stream.flush()
            records.append(record)
            progress(what, len(records), total)
    return records


def _whole_records(file: Path) -> tuple[list[dict[str, Any]], int]:
    """The records before the first line that a killed process did not finish, and how many bytes they are."""
    records, size = [], 0
    for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n"):
            break
        records.append(record)
        size += len(line)
    return records, size
