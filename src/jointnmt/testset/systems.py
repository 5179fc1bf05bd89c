"""Systems side by side on a test set: files of finished translations, and runs that translate it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Any

from jointnmt.data.lines import text_lines
from jointnmt.evaluation.scores import METRICS, CorpusMetric, Scores, check_parallel, corpus_metrics, scores_by
from jointnmt.testset.eval_set import EvalSet
from jointnmt.text.languages import base_language, check_code, language_of_file

if TYPE_CHECKING:
    from jointnmt.evaluation.likelihood import Likelihood
    from jointnmt.evaluation.significance import Comparison, ResampledScores
    from jointnmt.testset.records import ProgressCallback
    from jointnmt.translator import LoadOptions, Translator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SystemRun:
    """Translations of a test set by one training run."""

    name: str
    translations: Sequence[str]
    languages: tuple[str, str] | None = None
    """Languages of source and target, if the run is given."""
    likelihood: Likelihood | None = None
    """Likelihood of the references, if the run is given."""
    lowercase: bool = False
    """Whether the run writes lower case only."""

    @property
    def perplexity(self) -> float | None:
        """The perplexity of the references, if the run is given."""
        return None if self.likelihood is None else self.likelihood.perplexity


@dataclass(frozen=True)
class EvaluatedSystem:
    """A system: one training run, or several that differ in their seeds."""

    name: str
    runs: Sequence[SystemRun]

    @property
    def perplexity(self) -> float | None:
        """The geometric mean of the runs' perplexities; None if a run has none."""
        found = self.likelihoods
        return geometric_mean(each.perplexity for each in found) if found else None

    @property
    def likelihoods(self) -> list[Likelihood]:
        """The likelihood of the references under each run; empty if a run has none."""
        found = [run.likelihood for run in self.runs if run.likelihood is not None]
        return found if len(found) == len(self.runs) else []


@dataclass(frozen=True)
class ExampleSentence:
    """A sentence of the test set."""

    source: str | None
    references: Sequence[str]
    translations: Mapping[str, Sequence[str]]
    """Translations by name of the system, one of each run."""


@dataclass(frozen=True)
class MetricOptions:
    """How translations are scored."""

    language: str | None = None
    """The target language, for tokenisers; None: the runs', or English without any."""
    metrics: Sequence[str] = METRICS
    tokenized: bool = False
    """Whether the texts are already tokenised; see `corpus_metrics`."""
    lowercase: bool = False
    """Whether BLEU and chrF ignore case, as they do anyway if a run writes lower case only."""
    samples: int = 1000
    """Resampled test sets of a comparison."""


@dataclass(frozen=True)
class Evaluation:
    """Scores of several systems, in the same order throughout, and their comparison with the first one."""

    language: str
    lowercase: bool
    """Whether case is ignored."""
    eval_set: EvalSet
    systems: Sequence[EvaluatedSystem]
    scores: Sequence[Sequence[Scores]]
    """Scores of each run of each system."""
    resampled: Sequence[ResampledScores]
    """Resampled scores by each metric, and by `nll` for runs with the same segmentation; any two systems can be
    compared. Empty for a single run."""
    measures: Mapping[str, CorpusMetric]
    """The metrics, with cached statistics of all sentences."""

    @cached_property
    def comparisons(self) -> Sequence[Comparison]:
        """Comparisons of all systems with the first one, for each of `resampled`."""
        return [each.comparison() for each in self.resampled]

    def examples(self, count: int) -> Iterator[ExampleSentence]:
        """The first sentences, as many as there are."""
        for number in range(min(count, len(self.eval_set.references))):
            yield ExampleSentence(
                self.eval_set.sources[number] if self.eval_set.sources else None,
                [texts[number] for texts in self.eval_set.all_references],
                {system.name: [run.translations[number] for run in system.runs] for system in self.systems},
            )

    def sentences(self) -> Iterator[tuple[int | float | str, ...]]:
        """A head, and a row for each sentence of each run: line, system, run, scores, log-probability, pieces.

        The line counts from 1; a run without likelihoods has "" in place of the last two.
        """
        yield "line", "system", "run", *self.measures, "log_probability", "pieces"
        for system in self.systems:
            for run in system.runs:
                scores = [
                    measure.of_each(run.translations, self.eval_set.all_references)
                    for measure in self.measures.values()
                ]
                known = run.likelihood
                likelihoods = zip(known.log_probabilities, known.pieces, strict=True) if known else repeat(("", ""))
                for line, (*values, likelihood) in enumerate(zip(*scores, likelihoods, strict=False), start=1):
                    yield line, system.name, run.name, *values, *likelihood

    def plain(self, num_examples: int = 0) -> dict[str, Any]:
        """The fields as JSON-compatible values; a system of several runs has the values of each under `runs`."""
        systems = [_plain(system, scores) for system, scores in zip(self.systems, self.scores, strict=True)]
        values: dict[str, Any] = {"language": self.language, "systems": systems}
        if self.comparisons:
            values["comparisons"] = [asdict(comparison) for comparison in self.comparisons]
        if num_examples:
            values["examples"] = [asdict(example) for example in self.examples(num_examples)]
        return values


def _plain(system: EvaluatedSystem, scores: Sequence[Scores]) -> dict[str, Any]:
    runs = [
        {"name": run.name, "nll": run.likelihood and run.likelihood.nll, "perplexity": run.perplexity, **each.plain()}
        for run, each in zip(system.runs, scores, strict=True)
    ]
    name = {"name": system.name}
    if len(runs) == 1:
        return {**runs[0], **name}
    nll = fmean(each.nll for each in system.likelihoods) if system.likelihoods else None
    return {**name, "nll": nll, "perplexity": system.perplexity, "runs": runs}


def system_of_file(
    path: Path,
    run: Path | None,
    eval_set: EvalSet,
    computation: LoadOptions,
    others: Sequence[SystemRun],
    progress: ProgressCallback,
) -> SystemRun:
    """A file of translations; `run`, if given, is the one that made them and gives the references' perplexity.

    Raises:
        ConfigurationError: if the run translates other languages than the other systems.
        DataError: if the numbers of translations and references differ.
    """
    from jointnmt.testset.outputs import measure_likelihood  # slow to import, and not needed for files alone

    translations = list(text_lines(path))
    check_parallel(translations, eval_set.references, str(path), eval_set.reference_name)
    if run is None:
        return SystemRun(str(path), translations)
    translator = _load(run, computation, others)
    likelihood = measure_likelihood(translator, run, eval_set, progress)
    return _system(str(path), translations, translator, likelihood)


def system_of_run(
    run: Path,
    eval_set: EvalSet,
    computation: LoadOptions,
    others: Sequence[SystemRun],
    progress: ProgressCallback,
) -> SystemRun:
    """A run that translates the sources.

    Raises:
        ConfigurationError: if it translates other languages than the other systems.
        DataError: as in `run_outputs`.
    """
    from jointnmt.testset.outputs import run_outputs

    translator = _load(run, computation, others)
    outputs = run_outputs(translator, run, eval_set, progress)
    if outputs.cut:
        logger.warning("%s: %d translations reached the maximum length and were cut", run, outputs.cut)
    return _system(str(run), outputs.translations, translator, outputs.likelihood)


def _load(run: Path, computation: LoadOptions, others: Sequence[SystemRun]) -> Translator:
    """Load a run that must have the languages of the other systems."""
    from jointnmt.runs.members import members_of
    from jointnmt.testset.outputs import common_languages
    from jointnmt.translator import Translator

    translator = Translator.load(members_of(run), *computation)
    common_languages([*(each.languages for each in others if each.languages), translator.segmentation.languages])
    return translator


def _system(name: str, translations: Sequence[str], translator: Translator, likelihood: Likelihood) -> SystemRun:
    segmentation = translator.segmentation
    return SystemRun(name, translations, segmentation.languages, likelihood, segmentation.config.lowercase)


def evaluate_systems(systems: Sequence[EvaluatedSystem], eval_set: EvalSet, options: MetricOptions) -> Evaluation:
    """Score the systems, and compare each with the first one by paired bootstrap resampling, and over seeds.

    Raises:
        MissingPackageError: if BLEU's tokeniser of the language is not installed.
    """
    from jointnmt.evaluation.significance import resample, resample_likelihoods, warn_of_few

    runs = [run for system in systems for run in system.runs]
    language = options.language or _target_language(runs, eval_set)
    _warn_of_pieces(systems)
    _warn_of_empty(runs, eval_set)
    _warn_of_copies(systems)
    lowercase = options.lowercase or _ignore_case(runs, eval_set)
    measures = corpus_metrics(language, dict.fromkeys(["bleu", *options.metrics]), options.tokenized, lowercase)
    references = eval_set.all_references
    scores = [[scores_by(measures, run.translations, references) for run in system.runs] for system in systems]
    measures = {key: measures[key] for key in options.metrics}
    resampled: list[ResampledScores] = []
    if len(runs) > 1:
        logger.info("comparing %d systems on %d resampled test sets", len(systems), options.samples)
        outputs = {system.name: [run.translations for run in system.runs] for system in systems}
        warn_of_few(len(eval_set.references))
        resampled = resample(outputs, references, measures, options.samples)
        resampled += resample_likelihoods({each.name: each.likelihoods for each in systems}, options.samples)
    return Evaluation(language, lowercase, eval_set, systems, scores, resampled, measures)


def _warn_of_pieces(systems: Sequence[EvaluatedSystem]) -> None:
    """Name the systems whose likelihoods cannot be compared with those of the first one that has any."""
    known = [system for system in systems if system.likelihoods]
    if not known:
        return
    pieces = {each.segmentation for each in known[0].likelihoods}
    others = [system.name for system in known if {each.segmentation for each in system.likelihoods} != pieces]
    if others:
        logger.warning(
            "%s: nll and perplexity are over other pieces than those of %s, so they cannot be compared",
            ", ".join(others),
            known[0].name,
        )
    if known[0] is not systems[0] and len(known) > 1:
        logger.warning("%s: its run is not given, so nll and perplexity are not compared", systems[0].name)


def _target_language(runs: Sequence[SystemRun], eval_set: EvalSet) -> str:
    """The target language of the runs, else the extension of the reference's name, else English."""
    named = language_of_file(eval_set.reference_name)
    # `zh` or `zh-CN`; .txt and .en-de would be codes, too
    known = named if re.fullmatch(r"[a-z]{2}([-_][A-Z]\w*)?", named) and check_code(named) is None else None
    found = next((run.languages[1] for run in runs if run.languages), None)
    if found is None:
        return known or "en"
    if known and base_language(known) != base_language(found):
        logger.warning(
            "%s: its name ends in %s, but the runs write %s, whose rules count words; --language changes that",
            eval_set.reference_name,
            known,
            found,
        )
    return found


def _warn_of_empty(runs: Sequence[SystemRun], eval_set: EvalSet) -> None:
    texts = {eval_set.reference_name: eval_set.references, **{run.name: run.translations for run in runs}}
    for name, lines in texts.items():
        if empty := sum(not line.strip() for line in lines):
            logger.warning("%s: %d of %d lines are empty", name, empty, len(lines))
    for name, lines in eval_set.more_references.items():
        if empty := sum(not line.strip() for line in lines):
            logger.info("%s: %d of %d lines are empty and not used as references", name, empty, len(lines))


def _warn_of_copies(systems: Sequence[EvaluatedSystem]) -> None:
    """Warn of runs of one system with identical translations, which say nothing about seeds."""
    for system in systems:
        names: dict[tuple[str, ...], list[str]] = {}
        for run in system.runs:
            names.setdefault(tuple(run.translations), []).append(run.name)
        for copies in names.values():
            if len(copies) > 1:
                logger.warning(
                    "%s: %s have the same translations, as copies of one run have, so seeds do not vary",
                    system.name,
                    ", ".join(copies),
                )


def _ignore_case(runs: Sequence[SystemRun], eval_set: EvalSet) -> bool:
    """Whether a fair comparison must ignore case, because a run writes lower case only."""
    if lowercasing := [run.name for run in runs if run.lowercase]:
        logger.info("case is ignored, since only lower case is written by %s", ", ".join(lowercasing))
        return True
    if any(map(_has_capitals, eval_set.references)):
        lower = [
            run.name
            for run in runs
            if any(map(str.strip, run.translations)) and not any(map(_has_capitals, run.translations))
        ]
        if lower:
            logger.warning(
                "in lower case: %s; %s is not: --lowercase ignores case", ", ".join(lower), eval_set.reference_name
            )
    return False


def _has_capitals(text: str) -> bool:
    return text != text.lower()
