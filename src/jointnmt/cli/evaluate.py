"""`jointnmt evaluate`: how good are translations?"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jointnmt.cli.console import stdout
from jointnmt.cli.evaluation_report import Report, System, Texts
from jointnmt.cli.lines import text_lines
from jointnmt.cli.progress import Reports
from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.scores import METRICS, check_parallel, corpus_scores, measures
from jointnmt.evaluation.significance import paired_bootstrap

if TYPE_CHECKING:
    from jointnmt.testset.measuring import Texts as Parallel
    from jointnmt.translator import Translator

logger = logging.getLogger(__name__)


def evaluate(
    reference: Annotated[Path, typer.Option(help="File of reference translations, one a line (plain, .gz, .xz).")],
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Runs that translate the source first.")
    ] = None,
    hypothesis: Annotated[
        list[Path] | None, typer.Option(help="File of translations to measure, line by line. Repeatable.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="File of source sentences: for RUNs, and for perplexity.")] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="The run that made a hypothesis, for perplexity: one for each hypothesis, in their order."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Target language, for tokenisers. Default: that of the runs, or en without any.")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help=f"{', '.join(METRICS)}. Repeatable. Default: all.")] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="The texts are tokenised already: multi_bleu takes them as they are.")
    ] = False,
    lowercase: Annotated[
        bool,
        typer.Option(
            "--lowercase", help="Ignore case in BLEU and chrF too. Done anyway if a run writes lower case only."
        ),
    ] = False,
    samples: Annotated[int, typer.Option(min=100, help="Resampled test sets, to compare systems on.")] = 1000,
    show: Annotated[int, typer.Option(min=0, help="Show the first N sentences beside source and reference.")] = 0,
    device: Annotated[str, typer.Option(help="Where runs compute: auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Measure translations against references: BLEU, chrF, TER, the papers' BLEU, length ratio, perplexity.

    A system is a file of translations (--hypothesis) or a RUN, which translates the source first. Two or more systems
    are compared with the first one by paired bootstrap resampling. Perplexity is that of the references by a run. What
    runs compute is kept: interrupted, the same command goes on where it stopped.

    BLEU, chrF and TER are sacrebleu's, with its signatures. The papers' BLEU (multi_bleu) is that of multi-bleu.perl
    -lc on Moses-tokenised text (by sacremoses), without smoothing; sacrebleu computes it.
    """
    metrics = metric or METRICS
    _check_usage(hypothesis or [], run or [], runs or [], source, metrics)
    texts = _read_texts(reference, source)
    systems: list[System] = []
    for path, made_by in zip_longest(hypothesis or [], run or []):
        systems.append(_system_of_file(path, made_by, texts, device, systems))
    for path in runs or []:
        systems.append(_system_of_run(path, texts, device, systems))
    language = language or next((system.languages[1] for system in systems if system.languages), "en")
    lowercase = lowercase or _ignores_case(systems, texts)
    if len({system.pieces for system in systems if system.pieces}) > 1:
        logger.warning("perplexity is that of a piece: systems with different pieces cannot be compared by it")
    scores = [
        corpus_scores(system.translations, texts.references, language, metrics, tokenized, lowercase)
        for system in systems
    ]
    comparisons = []
    if len(systems) > 1:
        logger.info("comparing %d systems on %d resampled test sets", len(systems), samples)
        outputs = {system.name: system.translations for system in systems}
        used = measures(language, metrics, tokenized, lowercase)
        comparisons = paired_bootstrap(outputs, texts.references, used, samples)
    report = Report(language, metrics, texts, systems, scores, comparisons, show)
    if as_json:
        typer.echo(json.dumps(report.plain(), ensure_ascii=False))
    else:
        report.show(stdout())


def _check_usage(
    hypotheses: Sequence[Path],
    made_by: Sequence[Path],
    runs: Sequence[Path],
    source: Path | None,
    metrics: Sequence[str],
) -> None:
    if unknown := sorted(set(metrics) - set(METRICS)):
        raise ConfigurationError(
            f"--metric {', '.join(unknown)}: there is no such metric; there are {', '.join(METRICS)}."
        )
    if not hypotheses and not runs:
        raise ConfigurationError("There is nothing to evaluate: give translations (--hypothesis FILE), or a RUN.")
    if (runs or made_by) and source is None:
        raise ConfigurationError("A run translates the source, or predicts the reference from it: give --source FILE.")
    if made_by and len(made_by) != len(hypotheses):
        raise ConfigurationError(
            f"There are {len(hypotheses)} --hypothesis and {len(made_by)} --run: give the run of each hypothesis, in "
            "their order, or none."
        )
    names = [*map(str, hypotheses), *map(str, runs)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"{', '.join(twice)}: given twice. Give each system once.")


def _read_texts(reference: Path, source: Path | None) -> Texts:
    references = list(text_lines(reference))
    sources = [] if source is None else list(text_lines(source))
    check_parallel(references if source is None else sources, references, str(source or reference), str(reference))
    return Texts(references, sources, str(reference), str(source))


def _system_of_file(path: Path, run: Path | None, texts: Texts, device: str, others: Sequence[System]) -> System:
    from jointnmt.testset.measuring import measure_perplexity  # slow to import, and not needed to measure files

    translations = list(text_lines(path))
    check_parallel(translations, texts.references, str(path), texts.reference_name)
    if run is None:
        return System(str(path), translations)
    translator = _load(run, device, others)
    with Reports() as reports:
        perplexity = measure_perplexity(translator, run, _parallel(texts), reports.tell)
    return _system(str(path), translations, translator, perplexity)


def _system_of_run(run: Path, texts: Texts, device: str, others: Sequence[System]) -> System:
    from jointnmt.testset.measuring import measure

    translator = _load(run, device, others)
    with Reports() as reports:
        measured = measure(translator, run, _parallel(texts), reports.tell)
    if measured.cut:
        logger.warning("%s: %d translations reached the greatest length allowed and were cut", run, measured.cut)
    return _system(str(run), measured.translations, translator, measured.perplexity)


def _load(run: Path, device: str, others: Sequence[System]) -> Translator:
    """A run of the same languages as the other systems."""
    from jointnmt.testset.measuring import common_languages
    from jointnmt.translator import Translator

    translator = Translator.load(run, device)
    common_languages([*(each.languages for each in others if each.languages), translator.segmentation.languages])
    return translator


def _parallel(texts: Texts) -> Parallel:
    """The texts as what measures runs takes them."""
    from jointnmt.testset.measuring import Texts as Parallel

    return Parallel(texts.sources, texts.references, texts.source_name, texts.reference_name)


def _system(name: str, translations: Sequence[str], translator: Translator, perplexity: float) -> System:
    segmentation = translator.segmentation
    pieces = segmentation.fingerprint()
    return System(name, translations, segmentation.languages, perplexity, segmentation.config.lowercase, pieces)


def _ignores_case(systems: Sequence[System], texts: Texts) -> bool:
    """Whether scores have to ignore case to be fair, because a run writes lower case only."""
    if lowercasing := [system.name for system in systems if system.lowercase]:
        logger.info("case is ignored, since only lower case is written by %s", ", ".join(lowercasing))
        return True
    if any(map(_has_capitals, texts.references)):
        for system in systems:
            if not any(map(_has_capitals, system.translations)):
                logger.warning(
                    "%s is in lower case, %s is not: --lowercase ignores case", system.name, texts.reference_name
                )
    return False


def _has_capitals(text: str) -> bool:
    return text != text.lower()
