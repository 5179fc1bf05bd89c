"""What a run makes of a text, translations and predictions of the references, kept so that nothing is done twice."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from jointnmt.analysis.corpus import Predictions
from jointnmt.data.store import build_store
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.evaluation.scores import check_parallel
from jointnmt.testset.records import Progress, Record, Work, kept_records, run_name
from jointnmt.text.languages import check_sides
from jointnmt.text.special import eos_id
from jointnmt.translator import TranslationOptions, Translator
from jointnmt.translator.parts import Line, Part, Preparation

logger = logging.getLogger(__name__)

WINDOW = 128
"""Sentences translated at a time: what an interruption may lose."""


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
        return _perplexity(self.log_probabilities, self.hits)

    def predictions(self, counts: Sequence[int] | None) -> Predictions:
        """Hits with the training frequencies of their tokens; with no `counts`, all frequencies are 0."""
        frequencies = [[0 if counts is None else counts[i] for i in row] for row in self.target_ids]
        return Predictions(self.hits, frequencies)


def ignores_case(runs: Sequence[Measured]) -> bool:
    """Whether the runs are to be compared without regard to case: one of them writes lower case only."""
    return any(run.lowercase for run in runs)


def check_runs(runs: Sequence[Path]) -> None:
    """See that runs can be told apart by their names.

    Raises:
        ConfigurationError: if two have the same.
    """
    if len({run_name(run) for run in runs}) < len(runs):
        raise ConfigurationError("Two runs have the same name, and a figure could not tell them apart. Rename one.")


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

    Raises:
        DataError: naming the line, if a source is too long for the model, or empty while its reference is not; if the
            names of the files say that they are exchanged.
        ConfigurationError: if the cache cannot be written.
    """
    prepared = _prepared(translator, texts)
    sources = list(texts.sources)

    def translations(start: int) -> Iterator[Record]:
        for found in translator.translate_stream(sources[start:], TranslationOptions(window=WINDOW)):
            complete = not found.candidates or found.candidates[0].complete
            yield {"text": found.text, "complete": complete}

    facts = {"search": translator.experiment.search.plain(), "sources": sources}
    work = Work("translating", facts, len(sources), WINDOW, translations)
    translated = kept_records(translator, run, work, progress)
    predicted = _predicted(translator, run, texts, progress)
    return Measured(
        name=run_name(run),
        languages=translator.segmentation.languages,
        lowercase=translator.segmentation.config.lowercase,
        translations=[each["text"] for each in translated],
        cut=sum(not each["complete"] for each in translated),
        log_probabilities=[each["log_probability"] for each in predicted],
        hits=[[*map(bool, each["hits"])] for each in predicted],
        target_ids=[(*parts[0].target, eos_id) if parts else () for parts in prepared],
    )


def measure_perplexity(translator: Translator, run: Path, texts: Texts, progress: Progress) -> float:
    """That of the references alone, without a translation; as `Measured.perplexity`, with the errors of `measure`."""
    _prepared(translator, texts)
    predicted = _predicted(translator, run, texts, progress)
    return _perplexity([each["log_probability"] for each in predicted], [each["hits"] for each in predicted])


def _prepared(translator: Translator, texts: Texts) -> list[list[Part]]:
    """The parts that each line is computed in, once it is known that all can be."""
    check_sides(texts.source_name, texts.reference_name, translator.segmentation.languages)
    pairs = zip(texts.sources, texts.references, strict=True)
    lines = [Line(i, f"{texts.source_name}:{i}", *pair) for i, pair in enumerate(pairs, start=1)]
    return Preparation(translator.segmentation, translator.experiment.model.max_length).parts(lines)


def _predicted(translator: Translator, run: Path, texts: Texts, progress: Progress) -> list[Record]:
    """Of each reference its log-probability, and which of its tokens are the most probable ones."""
    sources, references = list(texts.sources), list(texts.references)

    def predictions(start: int) -> Iterator[Record]:
        for score in translator.score_stream(sources[start:], references[start:]):
            yield {"log_probability": score.log_probability, "hits": [*map(int, score.first_choices)]}

    facts = {"sources": sources, "references": references}
    work = Work("predicting", facts, len(sources), TranslationOptions.window, predictions)
    return kept_records(translator, run, work, progress)


def _perplexity(log_probabilities: Sequence[float], hits: Sequence[Sequence[object]]) -> float:
    """Given the tokens of each reference, by what is known of each."""
    return math.exp(min(-math.fsum(log_probabilities) / max(sum(map(len, hits)), 1), 700.0))


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
