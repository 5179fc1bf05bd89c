"""`jointnmt evaluate`: scores of translations, and comparisons of systems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.console import stdout
from jointnmt.cli.evaluation_report import show_evaluation
from jointnmt.cli.progress import ProgressBars
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.scores import METRICS
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.systems import (
    EvaluatedSystem,
    MetricOptions,
    evaluate_systems,
    system_of_file,
    system_of_run,
)


def evaluate(
    reference: Annotated[Path, typer.Option(help="Reference translations, one per line (plain, .gz, .xz).")],
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Runs that translate the source.")] = None,
    hypothesis: Annotated[
        list[Path] | None, typer.Option(help="Translations to evaluate, line by line. Repeatable.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Source sentences, for RUNs and for perplexity.")] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="The run of each hypothesis, in their order, for perplexity."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Target language, for tokenisers. Default: that of the runs, or en.")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help=f"{', '.join(METRICS)}. Repeatable. Default: all.")] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="The texts are tokenised: multi_bleu does not tokenise them again.")
    ] = False,
    lowercase: Annotated[
        bool,
        typer.Option(
            "--lowercase", help="Ignore case in BLEU and chrF too; the default if a run writes lower case only."
        ),
    ] = False,
    samples: Annotated[int, typer.Option(min=100, help="Resampled test sets for comparisons.")] = 1000,
    show: Annotated[int, typer.Option(min=0, help="Show the first N sentences with source and reference.")] = 0,
    device: Annotated[str, typer.Option(help="Where runs compute: auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Evaluate translations against references: BLEU, chrF, TER, the papers' BLEU, length ratio, perplexity.

    A system is a file of translations (--hypothesis) or a RUN, which translates the source. Further systems are
    compared with the first one by paired bootstrap resampling. Perplexity is a run's on the references. Outputs of runs
    are cached: after an interruption, the same command resumes.

    BLEU, chrF and TER are sacrebleu's, with its signatures. The papers' BLEU (multi_bleu) is that of multi-bleu.perl
    -lc on Moses-tokenised text (by sacremoses), without smoothing; sacrebleu computes it.
    """
    metrics = metric or METRICS
    _check_usage(hypothesis or [], run or [], runs or [], source, metrics)
    sources = [] if source is None else list(text_lines(source))
    eval_set = EvalSet(sources, list(text_lines(reference)), "" if source is None else str(source), str(reference))
    systems: list[EvaluatedSystem] = []
    with ProgressBars() as progress:
        for path, made_by in zip_longest(hypothesis or [], run or []):
            systems.append(system_of_file(path, made_by, eval_set, device, systems, progress.update))
        for path in runs or []:
            systems.append(system_of_run(path, eval_set, device, systems, progress.update))
    evaluation = evaluate_systems(systems, eval_set, MetricOptions(language, metrics, tokenized, lowercase, samples))
    if as_json:
        typer.echo(json.dumps(evaluation.plain(show), ensure_ascii=False))
    else:
        show_evaluation(stdout(), evaluation, show)


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
