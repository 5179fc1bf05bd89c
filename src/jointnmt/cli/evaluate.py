"""`jointnmt evaluate`: scores of translations, and comparisons of systems."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated

import typer

from jointnmt.cli.console import stdout
from jointnmt.cli.edges import Edges, buckets_of
from jointnmt.cli.evaluation_report import length_tables, show_evaluation
from jointnmt.cli.lines import check_output
from jointnmt.cli.options import COMPRESSED, BatchCellsOption, DeviceOption, JsonOption, PrecisionOption
from jointnmt.cli.progress import ProgressBars
from jointnmt.cli.texts import check_language
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.scores import ALL_METRICS, METRICS
from jointnmt.files import write_text
from jointnmt.runs.members import members_of
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.systems import (
    EvaluatedSystem,
    Evaluation,
    MetricOptions,
    SystemRun,
    evaluate_systems,
    system_of_file,
    system_of_run,
)
from jointnmt.text.languages import language_of_file, num_words
from jointnmt.translator.options import LoadOptions

if TYPE_CHECKING:
    from jointnmt.analysis.corpus import LengthComparison

logger = logging.getLogger(__name__)

LONGEST_WORD = 20
"""Mean word length, in letters, above which a text is taken for one written without spaces."""


@dataclass(frozen=True)
class Given:
    """A training run of a system, as given on the command line."""

    path: Path
    translates: bool
    """Whether `path` is a RUN, and not a file of translations."""
    made_by: Path | None = None
    """The run that produced a file of translations."""


@dataclass(frozen=True)
class GivenSystems:
    """Options that name the systems, and what they translate."""

    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Runs that translate the source; A+B+C: an ensemble.")
    ] = None
    hypothesis: Annotated[
        list[Path] | None, typer.Option(help="Translations to evaluate, line by line. Repeatable.")
    ] = None
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B,...",
            help="A system of several training runs that differ in their seeds: RUNs, or files of translations. "
            "An ensemble is one run: NAME=A+B+C. Repeatable.",
        ),
    ] = None
    source: Annotated[
        Path | None, typer.Option(help=f"Source sentences, for RUNs and for perplexity ({COMPRESSED}).")
    ] = None
    run: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="The run of each hypothesis, in their order, for perplexity. Repeatable."),
    ] = None

    def by_name(self) -> list[tuple[str, list[Given]]]:
        """The systems by their names, in the order in which they are compared: files, RUNs, those of several runs.

        Raises:
            ConfigurationError: if there is none, one twice, not a run for each file, or no source for runs.
        """
        hypotheses, makers = self.hypothesis or [], self.run or []
        if makers and len(makers) != len(hypotheses):
            raise ConfigurationError(
                f"There are {len(hypotheses)} --hypothesis and {len(makers)} --run: give the run of each --hypothesis, "
                "in their order, or none. In --system, name the runs themselves in place of their translations."
            )
        files = [(str(path), [Given(path, False, made_by)]) for path, made_by in zip_longest(hypotheses, makers)]
        runs = [(str(path), [Given(path, True)]) for path in self.runs or []]
        systems = [*files, *runs, *map(_of_several_runs, self.system or [])]
        if not systems:
            raise ConfigurationError("There is nothing to evaluate: give translations (--hypothesis FILE), or a RUN.")
        for names in ([name for name, _ in systems], [str(part.path) for _, parts in systems for part in parts]):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ConfigurationError(f"{', '.join(twice)}: given twice. Give each system once.")
        if self.source is None and any(part.translates or part.made_by for _, parts in systems for part in parts):
            raise ConfigurationError(
                "A run translates the source, or predicts the reference from it: give --source FILE."
            )
        return systems


@dataclass(frozen=True)
class GivenMetrics:
    """Options of how translations are measured and compared."""

    language: Annotated[
        str | None,
        typer.Option(
            help="Target language, for tokenisers.",
            show_default="that of the runs, else of the reference's name, else en",
        ),
    ] = None
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC", help=f"{', '.join(ALL_METRICS)}. Repeatable.", show_default="all but compound_bleu"
        ),
    ] = None
    tokenized: Annotated[
        bool,
        typer.Option(
            "--tokenized", help="The texts are tokenised: multi_bleu and compound_bleu do not tokenise them again."
        ),
    ] = False
    lowercase: Annotated[
        bool,
        typer.Option(
            "--lowercase", help="Ignore case in BLEU and chrF too; the default if a run writes lower case only."
        ),
    ] = False
    resamples: Annotated[int, typer.Option(min=100, help="Resampled test sets for comparisons.")] = 1000

    def checked(self) -> MetricOptions:
        """The options of the evaluation.

        Raises:
            ConfigurationError: for an unknown metric or language, and if nothing is tokenised.
        """
        metrics = self.metric or METRICS
        if unknown := sorted(set(metrics) - set(ALL_METRICS)):
            raise ConfigurationError(
                f"--metric {', '.join(unknown)}: there is no such metric. Choose from {', '.join(ALL_METRICS)}."
            )
        if self.tokenized and not {"multi_bleu", "compound_bleu"} & set(metrics):
            raise ConfigurationError(
                "--tokenized is for multi_bleu and compound_bleu: leave it out, or ask for one of them."
            )
        check_language("--language", self.language)
        return MetricOptions(self.language, metrics, self.tokenized, self.lowercase, self.resamples)


def evaluate(
    reference: Annotated[
        list[Path], typer.Option(help=f"Reference translations, line by line ({COMPRESSED}). Repeatable.")
    ],
    given: GivenSystems,
    metrics: GivenMetrics,
    by_length: Annotated[
        bool, typer.Option("--by-length", help="Also compare systems by length of the source, in words.")
    ] = False,
    length_edges: Edges = None,
    show: Annotated[int, typer.Option(min=0, help="Show the first N sentences with source and reference.")] = 0,
    sentences: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a table (TSV) of the scores of each sentence, and the log-probability of its reference.",
        ),
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    batch_cells: BatchCellsOption = None,
) -> None:
    """Evaluate translations against references: BLEU, chrF, TER, the papers' BLEU, length ratio, perplexity.

    A system is a file of translations (--hypothesis), a RUN, which translates the source, or several of either that
    differ in their seeds (--system). All are compared with the first one (files come before RUNs, RUNs before
    --system): by paired bootstrap resampling, and, if there are several runs, over seeds and sentences.
    Perplexity is a run's on the (first) reference. Outputs of runs are cached: after an interruption, the same command
    resumes.

    BLEU, chrF and TER are sacrebleu's, with its signatures. The papers' BLEU (multi_bleu) is that of multi-bleu.perl
    -lc on Moses-tokenised text (by sacremoses), without smoothing; sacrebleu computes it. compound_bleu is that of
    WMT14 papers since Vaswani et al. 2017: cased, words split at hyphens.
    """
    options, named = metrics.checked(), given.by_name()
    _check_runs(named)
    _check_lengths(given, sum(len(parts) for _, parts in named), by_length, length_edges)
    check_output(sentences, [*reference, given.source, *(part.path for _, parts in named for part in parts)])
    eval_set = _eval_set(given.source, reference)
    systems = _measured(named, eval_set, LoadOptions(device, precision, batch_cells))
    evaluation = evaluate_systems(systems, eval_set, options)
    lengths = list(_by_length(evaluation, options, length_edges)) if by_length else []
    if sentences is not None:
        write_text(sentences, "".join("\t".join(map(_cell, row)) + "\n" for row in evaluation.sentences()))
    if as_json:
        values = evaluation.plain(show)
        if by_length:
            values["by_length"] = [each.plain() for each in lengths]
        typer.echo(json.dumps(values, ensure_ascii=False))
        return
    show_evaluation(stdout(), evaluation, show)
    for table in length_tables(lengths):
        stdout().print(table)


def _cell(value: float | str) -> str:
    return f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())


def _of_several_runs(given: str) -> tuple[str, list[Given]]:
    """The name and the runs of `NAME=A,B,...`."""
    name, _, parts = given.partition("=")
    members = [(Path(part), members_of(Path(part))) for part in parts.split(",") if part]
    if not name or not members:
        raise ConfigurationError(
            f"--system {given}: must be NAME=A,B,... with RUNs or files of translations, as in small=runs/s1,runs/s2."
        )
    if lost := [path for path, runs in members if len(runs) == 1 and not runs[0].exists()]:
        raise ConfigurationError(
            f"--system {given}: {lost[0]} is neither a RUN nor a file of translations. Check the path."
        )
    return name, [Given(path, len(runs) > 1 or runs[0].is_dir()) for path, runs in members]


def _check_runs(systems: Sequence[tuple[str, Sequence[Given]]]) -> None:
    """Refuse what is no RUN, before any of them translates.

    Raises:
        ModelError: if it has no trained model.
    """
    parts = [part for _, members in systems for part in members]
    for run in (run for part in parts if (run := part.path if part.translates else part.made_by)):
        from jointnmt.runs.loading import read_experiment  # imports torch, which files alone do not need

        for each in members_of(run):
            read_experiment(each)


def _check_lengths(given: GivenSystems, runs: int, by_length: bool, edges: Sequence[int] | None) -> None:
    if by_length and (given.source is None or runs < 2):
        raise ConfigurationError("--by-length compares systems by their sources: give two systems, and --source FILE.")
    if edges:
        from jointnmt.analysis.corpus import LENGTHS

        buckets_of(edges, LENGTHS)
        if not by_length:
            raise ConfigurationError("--length-edges: is for --by-length.")


def _eval_set(source: Path | None, references: Sequence[Path]) -> EvalSet:
    sources = [] if source is None else list(text_lines(source))
    first, *others = references
    more = {str(path): list(text_lines(path)) for path in others}
    return EvalSet(sources, list(text_lines(first)), "" if source is None else str(source), str(first), more)


def _measured(
    systems: Sequence[tuple[str, Sequence[Given]]], eval_set: EvalSet, how: LoadOptions
) -> list[EvaluatedSystem]:
    """The systems with their translations; RUNs translate first."""
    found: list[EvaluatedSystem] = []
    others: list[SystemRun] = []
    with ProgressBars() as progress:
        for name, parts in systems:
            for part in parts:
                if part.translates:
                    others.append(system_of_run(part.path, eval_set, how, others, progress.update))
                else:
                    settings = part.made_by, eval_set, how, others, progress.update
                    others.append(system_of_file(part.path, *settings))
            found.append(EvaluatedSystem(name, others[-len(parts) :]))
    return found


def _by_length(
    evaluation: Evaluation, options: MetricOptions, edges: Sequence[int] | None
) -> Iterator[LengthComparison]:
    """The comparisons of an evaluation, by length of the source."""
    from jointnmt.analysis.corpus import LENGTHS, comparisons_by_length

    runs = [run for system in evaluation.systems for run in system.runs]
    eval_set = evaluation.eval_set
    language = next((run.languages[0] for run in runs if run.languages), language_of_file(eval_set.source_name))
    lengths = [num_words(text, language) for text in eval_set.sources]
    if mean(map(len, eval_set.sources)) > LONGEST_WORD * mean(lengths):
        logger.warning(
            "%s: seems to be written without spaces, so words cannot be counted; let its name end in its language, "
            "such as .zh or .ja, to count characters instead",
            eval_set.source_name,
        )
    outputs = {system.name: [run.translations for run in system.runs] for system in evaluation.systems}
    likelihoods = {system.name: system.likelihoods for system in evaluation.systems}
    facts = lengths, evaluation.measures, buckets_of(edges, LENGTHS), options.samples, likelihoods
    return comparisons_by_length(outputs, eval_set.all_references, *facts)
