"""Outputs of a run on a test set: translations and predictions of the references, cached line by line."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jointnmt.errors import ConfigurationError, DataError
from jointnmt.evaluation.likelihood import Likelihood
from jointnmt.runs.members import members_of
from jointnmt.runs.training_text import open_text_of_run
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.records import CachedTask, ProgressCallback, Record, cached_records, run_name
from jointnmt.text.languages import check_sides
from jointnmt.text.special import with_end
from jointnmt.translator import LoadOptions, TranslationOptions, Translator
from jointnmt.translator.preprocessing import EncodedSentence, Line

logger = logging.getLogger(__name__)

WINDOW = 128
"""Sentences translated at a time, the most that an interruption loses."""


@dataclass(frozen=True)
class RunOutputs:
    """The results of a run on a test set."""

    name: str
    languages: tuple[str, str]
    """Language codes of source and target."""
    lowercase: bool
    """Whether the run writes lower case only."""
    translations: Sequence[str]
    cut: int
    """Number of translations cut at the maximum length."""
    log_probabilities: Sequence[float]
    """Log-probability of each reference, given its source."""
    hits: Sequence[Sequence[bool]]
    """For each token of each reference, end marks included, whether it is the run's most probable one."""
    target_ids: Sequence[Sequence[int]]
    """Ids of these tokens."""
    segmentation: str = ""
    """Fingerprint of the segmentation that made them."""

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the references."""
        return Likelihood(self.log_probabilities, [*map(len, self.hits)], self.segmentation)

    @property
    def perplexity(self) -> float:
        """The perplexity of the references."""
        return self.likelihood.perplexity


def ignores_case(runs: Sequence[RunOutputs]) -> bool:
    """Whether a comparison must ignore case, because a run writes lower case only."""
    return any(run.lowercase for run in runs)


def check_runs(runs: Sequence[Path]) -> None:
    """Check that the names of runs differ.

    Raises:
        ConfigurationError: if two have the same name.
    """
    if len({run_name(run) for run in runs}) < len(runs):
        raise ConfigurationError("Two runs have the same name, and a figure could not tell them apart. Rename one.")


def common_languages(systems: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The common languages of source and target.

    Raises:
        ConfigurationError: if the languages of the systems differ.
    """
    if len(set(systems)) > 1:
        raise ConfigurationError(f"The runs have different languages: {', '.join(map('-'.join, systems))}.")
    return systems[0]


def run_outputs(translator: Translator, run: Path, eval_set: EvalSet, progress: ProgressCallback) -> RunOutputs:
    """Translate the sources and predict the references, or resume an interrupted computation.

    Raises:
        DataError: naming the line, if a source is too long for the model, or empty while its reference is not; if the
            file names say that source and reference are swapped.
        ConfigurationError: if the cache cannot be written.
    """
    encoded = _encoded(translator, eval_set)
    sources = list(eval_set.sources)

    def translations(done: int) -> Iterator[Record]:
        for found in translator.translate_stream(sources, TranslationOptions(window=WINDOW), done=done):
            complete = not found.candidates or found.candidates[0].complete
            yield {"text": found.text, "complete": complete}

    facts = {"search": translator.search.plain(), "sources": sources}
    task = CachedTask("translating", facts, len(sources), translations)
    translated = cached_records(translator, run, task, progress)
    predicted = _predicted(translator, run, eval_set, progress)
    return RunOutputs(
        name=run_name(run),
        languages=translator.segmentation.languages,
        lowercase=translator.segmentation.config.lowercase,
        translations=[each["text"] for each in translated],
        cut=sum(not each["complete"] for each in translated),
        log_probabilities=[each["log_probability"] for each in predicted],
        hits=[[*map(bool, each["hits"])] for each in predicted],
        target_ids=[with_end(sentences[0].target) if sentences else () for sentences in encoded],
        segmentation=translator.segmentation.fingerprint(),
    )


def outputs_of_runs(
    runs: Sequence[Path], eval_set: EvalSet, computation: LoadOptions, progress: ProgressCallback
) -> tuple[list[RunOutputs], dict[str, list[int]]]:
    """`run_outputs` of each run, and `training_counts` by name of those whose training text exists.

    Raises:
        ConfigurationError: if the runs have different languages.
    """
    outputs, languages = [], []
    counts: dict[str, list[int]] = {}
    for run in runs:
        translator = Translator.load(run, *computation)
        languages.append(translator.segmentation.languages)
        common_languages(languages)  # before the run is computed
        found = training_counts(translator, run)  # first, so that a missing training text is reported at once
        if found is not None:
            counts[run_name(run)] = found
        outputs.append(run_outputs(translator, run, eval_set, progress))
    return outputs, counts


def measure_likelihood(translator: Translator, run: Path, eval_set: EvalSet, progress: ProgressCallback) -> Likelihood:
    """`RunOutputs.likelihood` without translating; the errors are those of `run_outputs`."""
    _encoded(translator, eval_set)
    predicted = _predicted(translator, run, eval_set, progress)
    pieces = [len(each["hits"]) for each in predicted]
    fingerprint = translator.segmentation.fingerprint()
    return Likelihood([each["log_probability"] for each in predicted], pieces, fingerprint)


def _encoded(translator: Translator, eval_set: EvalSet) -> list[list[EncodedSentence]]:
    """The sentences of each line, all checked before any is computed."""
    check_sides(eval_set.source_name, eval_set.reference_name, translator.segmentation.languages)
    pairs = zip(eval_set.sources, eval_set.references, strict=True)
    lines = [Line(i, f"{eval_set.source_name}:{i}", *pair) for i, pair in enumerate(pairs, start=1)]
    return translator.preprocessor().encode(lines)


def _predicted(translator: Translator, run: Path, eval_set: EvalSet, progress: ProgressCallback) -> list[Record]:
    """The log-probability of each reference, and which of its tokens are the most probable ones."""
    sources, references = list(eval_set.sources), list(eval_set.references)

    def predictions(done: int) -> Iterator[Record]:
        for score in translator.score_stream(sources, references, done=done):
            yield {"log_probability": score.log_probability, "hits": [*map(int, score.first_choices)]}

    facts = {"sources": sources, "references": references}
    task = CachedTask("predicting", facts, len(sources), predictions)
    return cached_records(translator, run, task, progress)


def training_counts(translator: Translator, run: Path) -> list[int] | None:
    """Counts of each target piece in the run's training text; the end mark counts once a sentence.

    None, with a warning, if the training text is not found, or has changed since the training.
    """
    try:
        store = open_text_of_run(members_of(run)[0], translator.experiment.data, translator.segmentation)
    except (ConfigurationError, DataError) as error:
        logger.warning("%s: left out of accuracy by frequency. %s", run_name(run), error)
        return None
    return store.target_token_counts(translator.segmentation.target.vocabulary_size).tolist()
