"""Systems side by side on a test set: files of finished translations, and runs that translate it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointnmt.data.lines import text_lines
from jointnmt.evaluation.scores import METRICS, Scores, check_parallel, corpus_metrics, corpus_scores
from jointnmt.evaluation.significance import Comparison, paired_bootstrap
from jointnmt.testset.eval_set import EvalSet

if TYPE_CHECKING:
    from jointnmt.testset.records import ProgressCallback
    from jointnmt.translator import Translator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluatedSystem:
    """Translations of a test set by one system."""

    name: str
    translations: Sequence[str]
    languages: tuple[str, str] | None = None
    """Of source and target, if the system is a run."""
    perplexity: float | None = None
    """Of the references, if the system is a run."""
    lowercase: bool = False
    """Whether the run writes lower case only."""
    segmentation: str | None = None
    """The fingerprint of the run's segmentation: perplexities compare only between equal ones."""


@dataclass(frozen=True)
class MetricOptions:
    """How translations are scored."""

    language: str | None = None
    """The target language, for tokenisers; None: the runs', or English without any."""
    metrics: Sequence[str] = METRICS
    tokenized: bool = False
    """The texts are tokenised already; see `corpus_metrics`."""
    lowercase: bool = False
    """BLEU and chrF ignore case; they do so anyway if a run writes lower case only."""
    samples: int = 1000
    """Resampled test sets of a comparison."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of several systems, in one order throughout, and their comparison with the first one."""

    language: str
    eval_set: EvalSet
    systems: Sequence[EvaluatedSystem]
    scores: Sequence[Scores]
    comparisons: Sequence[Comparison]
    """One for each metric; none of a single system."""

    def examples(self, count: int) -> Iterator[list[tuple[str, str]]]:
        """For each of the first sentences: pairs of a name and a text, of source, reference and translations."""
        for number, reference in enumerate(self.eval_set.references[:count]):
            source = [("source", self.eval_set.sources[number])] if self.eval_set.sources else []
            translations = [(system.name, system.translations[number]) for system in self.systems]
            yield [*source, ("reference", reference), *translations]

    def plain(self, num_examples: int = 0) -> dict[str, Any]:
        """As JSON-compatible values."""
        systems = [
            {"name": system.name, "perplexity": system.perplexity, **scores.plain()}
            for system, scores in zip(self.systems, self.scores, strict=True)
        ]
        values: dict[str, Any] = {"language": self.language, "systems": systems}
        if self.comparisons:
            values["comparisons"] = [asdict(comparison) for comparison in self.comparisons]
        if num_examples:
            values["examples"] = [dict(example) for example in self.examples(num_examples)]
        return values


def system_of_file(
    path: Path,
    run: Path | None,
    eval_set: EvalSet,
    device: str,
    others: Sequence[EvaluatedSystem],
    progress: ProgressCallback,
) -> EvaluatedSystem:
    """A file of translations; `run`, if given, is the one that made them and gives the references' perplexity.

    Raises:
        ConfigurationError: if the run translates other languages than the other systems.
        DataError: if there are not as many translations as references.
    """
    from jointnmt.testset.outputs import measure_perplexity  # slow to import, and not needed for files alone

    translations = list(text_lines(path))
    check_parallel(translations, eval_set.references, str(path), eval_set.reference_name)
    if run is None:
        return EvaluatedSystem(str(path), translations)
    translator = _load(run, device, others)
    perplexity = measure_perplexity(translator, run, eval_set, progress)
    return _system(str(path), translations, translator, perplexity)


def system_of_run(
    run: Path, eval_set: EvalSet, device: str, others: Sequence[EvaluatedSystem], progress: ProgressCallback
) -> EvaluatedSystem:
    """A run that translates the sources.

    Raises:
        ConfigurationError: if it translates other languages than the other systems.
        DataError: as of `run_outputs`.
    """
    from jointnmt.testset.outputs import run_outputs

    translator = _load(run, device, others)
    outputs = run_outputs(translator, run, eval_set, progress)
    if outputs.cut:
        logger.warning("%s: %d translations reached the maximum length and were cut", run, outputs.cut)
    return _system(str(run), outputs.translations, translator, outputs.perplexity)


def _load(run: Path, device: str, others: Sequence[EvaluatedSystem]) -> Translator:
    """A run of the same languages as the other systems."""
    from jointnmt.testset.outputs import common_languages
    from jointnmt.translator import Translator

    translator = Translator.load(run, device)
    common_languages([*(each.languages for each in others if each.languages), translator.segmentation.languages])
    return translator


def _system(name: str, translations: Sequence[str], translator: Translator, perplexity: float) -> EvaluatedSystem:
    segmentation = translator.segmentation
    lowercase, fingerprint = segmentation.config.lowercase, segmentation.fingerprint()
    return EvaluatedSystem(name, translations, segmentation.languages, perplexity, lowercase, fingerprint)


def evaluate_systems(systems: Sequence[EvaluatedSystem], eval_set: EvalSet, options: MetricOptions) -> Evaluation:
    """Score the systems, and compare each with the first one by paired bootstrap resampling.

    Raises:
        ConfigurationError: if BLEU's tokeniser of the language is not installed.
    """
    language = options.language or next((system.languages[1] for system in systems if system.languages), "en")
    if len({system.segmentation for system in systems if system.segmentation}) > 1:
        logger.warning("perplexity is per piece: systems with different pieces cannot be compared by it")
    settings = language, options.metrics, options.tokenized, options.lowercase or _ignore_case(systems, eval_set)
    scores = [corpus_scores(system.translations, eval_set.references, *settings) for system in systems]
    comparisons = []
    if len(systems) > 1:
        logger.info("comparing %d systems on %d resampled test sets", len(systems), options.samples)
        outputs = {system.name: system.translations for system in systems}
        comparisons = paired_bootstrap(outputs, eval_set.references, corpus_metrics(*settings), options.samples)
    return Evaluation(language, eval_set, systems, scores, comparisons)


def _ignore_case(systems: Sequence[EvaluatedSystem], eval_set: EvalSet) -> bool:
    """Whether a fair comparison has to ignore case, because a run writes lower case only."""
    if lowercasing := [system.name for system in systems if system.lowercase]:
        logger.info("case is ignored, since only lower case is written by %s", ", ".join(lowercasing))
        return True
    if any(map(_has_capitals, eval_set.references)):
        for system in systems:
            if not any(map(_has_capitals, system.translations)):
                logger.warning(
                    "%s is in lower case, %s is not: --lowercase ignores case", system.name, eval_set.reference_name
                )
    return False


def _has_capitals(text: str) -> bool:
    return text != text.lower()
