"""The tables of `jointnmt evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from jointnmt.cli.console import counted, numeric
from jointnmt.evaluation.p_values import star, stated
from jointnmt.evaluation.scores import ALL_METRICS, TITLES, Scores
from jointnmt.testset.systems import EvaluatedSystem, Evaluation, ExampleSentence

if TYPE_CHECKING:
    from jointnmt.analysis.corpus import LengthComparison
    from jointnmt.evaluation.significance import BootstrapResult, Comparison

OVER_SENTENCES = (
    "Resampled texts: mean ± half of the 95% interval. p: probability of such a difference from {first}, in either "
    "direction, by the choice of sentences alone, for these very runs; * below 0.05."
)
OVER_SEEDS = (
    "Difference from {first} ± half of the 95% interval, and its p, over other seeds and sentences; * below 0.05. "
    "t-test with crossed random effects; both systems are assumed to vary equally with the seed."
)


def show_evaluation(console: Console, evaluation: Evaluation, num_examples: int) -> None:
    """Print examples, scores with their signatures, and comparisons."""
    first = evaluation.scores[0][0]
    if num_examples:
        console.print(_example_table(evaluation, num_examples))
    console.print(_score_table(evaluation))
    for metric in _measured_metrics(first):
        console.print(_signature(metric, getattr(first, metric).signature), soft_wrap=True)
    if len(evaluation.systems) < 2:
        return
    name = evaluation.systems[0].name
    table = _comparison_table("Paired bootstrap resampling", OVER_SENTENCES.format(first=name), evaluation)
    for system in evaluation.systems:
        table.add_row(Text(system.name), *(_interval(each, system.name) for each in evaluation.comparisons))
    console.print(table)
    if any(result.difference for result in evaluation.comparisons[0].systems):
        table = _comparison_table("Over seeds and sentences", OVER_SEEDS.format(first=name), evaluation)
        for system in evaluation.systems[1:]:
            table.add_row(Text(system.name), *(_difference(each, system.name) for each in evaluation.comparisons))
        console.print(table)
    for comparison in evaluation.comparisons:
        console.print(_signature(comparison.metric, comparison.signature), soft_wrap=True)


def length_tables(lengths: Sequence[LengthComparison]) -> Iterator[Table]:
    """A table for each metric: scores by length of the source, and their differences from the first system."""
    found = next((each for each in lengths if each.comparisons), None)
    for number, comparison in enumerate(found.comparisons if found else ()):
        table = Table(
            title=f"{TITLES[comparison.metric]} by length of the source",
            caption=f"p: of the difference from {comparison.systems[0].system}, over seeds and sentences if there are "
            "several runs, else over sentences; * below 0.05",
        )
        table.add_column("words")
        table.add_column("sentences", justify="right")
        for result in comparison.systems:
            table.add_column(result.system, justify="right", overflow="fold")
        for each in lengths:
            results = each.comparisons[number].systems if each.comparisons else ()
            cells = (_score_with_p(result, comparison.decimals) for result in results)
            table.add_row(each.bucket, f"{each.size:,}", *cells)
        yield table


def _measured_metrics(scores: Scores) -> list[str]:
    return [metric for metric in ALL_METRICS if getattr(scores, metric) is not None]


def _example_table(evaluation: Evaluation, count: int) -> Table:
    table = Table(show_header=False, title=f"The first {counted(count, 'sentence')}")
    for example in evaluation.examples(count):
        for name, sentence in _lines(example, evaluation.systems):
            table.add_row(Text(name, style="dim"), Text(sentence))
        table.add_section()
    return table


def _lines(example: ExampleSentence, systems: Sequence[EvaluatedSystem]) -> Iterator[tuple[str, str]]:
    """The texts of an example, each with its label."""
    if example.source is not None:
        yield "source", example.source
    yield from (("reference", text) for text in example.references)
    for system in systems:
        names = [run.name for run in system.runs] if len(system.runs) > 1 else [system.name]
        yield from zip(names, example.translations[system.name], strict=True)


def _score_table(evaluation: Evaluation) -> Table:
    first = evaluation.scores[0][0]
    several = any(len(system.runs) > 1 for system in evaluation.systems)
    with_likelihoods = any(system.likelihoods for system in evaluation.systems)
    metrics = _measured_metrics(first)
    headings = ["runs"] if several else []
    headings += [*(TITLES[metric] for metric in metrics), "length ratio"]
    headings += ["nll", "perplexity"] if with_likelihoods else []
    table = Table(
        Column("system", overflow="fold"),
        *numeric(*headings),
        title=f"{first.sentences:,} sentences, target language {evaluation.language}",
        caption=" ".join(
            [*_directions(evaluation), *(["Of several runs: mean ± standard deviation."] if several else [])]
        ),
    )
    for system, scores in zip(evaluation.systems, evaluation.scores, strict=True):
        row = [str(len(system.runs))] if several else []
        row += [_mean([getattr(each, metric).value for each in scores]) for metric in metrics]
        row.append(f"{mean(each.length_ratio for each in scores):.3f}")
        table.add_row(Text(system.name), *row, *(_likelihood(system) if with_likelihoods else []))
    return table


def _mean(values: Sequence[float], decimals: int = 2) -> str:
    deviation = f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return f"{mean(values):.{decimals}f}{deviation}"


def _directions(evaluation: Evaluation) -> list[str]:
    """A note that names the scores for which lower is better."""
    lower = [TITLES["ter"]] if evaluation.scores[0][0].ter else []
    if any(system.likelihoods for system in evaluation.systems):
        lower += ["nll (nats a piece of the references)", "perplexity"]
    return [f"Lower is better: {', '.join(lower)}."] if lower else []


def _likelihood(system: EvaluatedSystem) -> list[str]:
    """The cells `nll` and perplexity."""
    if system.perplexity is None:
        return ["", ""]
    return [_mean([each.nll for each in system.likelihoods], 3), f"{system.perplexity:.2f}"]


def _comparison_table(title: str, caption: str, evaluation: Evaluation) -> Table:
    headings = numeric(*(TITLES[comparison.metric] for comparison in evaluation.comparisons))
    return Table(Column("system", overflow="fold"), *headings, title=title, caption=caption)


def _interval(comparison: Comparison, system: str) -> str:
    result, digits = comparison.of(system), comparison.decimals
    if result is None:
        return ""
    text = "" if result.half_width is None else f"{result.mean:.{digits}f} ± {result.half_width:.{digits}f}"
    return text if result.p_value is None else f"{text}\n{_tested(result.p_value)}"


def _difference(comparison: Comparison, system: str) -> str:
    result, digits = comparison.of(system), comparison.decimals
    if result is None or (found := result.difference) is None:
        return ""
    return f"{found.value:+.{digits}f} ± {found.half_width:.{digits}f}\n{_tested(found.p_value)}"


def _score_with_p(result: BootstrapResult, decimals: int) -> str:
    deviation = "" if result.deviation is None else f" ± {result.deviation:.{decimals}f}"
    text = f"{result.score:.{decimals}f}{deviation}"
    p_value = result.difference.p_value if result.difference else result.p_value
    return text if p_value is None else f"{text}\n{_tested(p_value)}"


def _tested(p_value: float) -> str:
    return stated(p_value) + star(p_value)


def _signature(metric: str, signature: str) -> Text:
    return Text(f"{TITLES[metric]}: {signature}", style="dim")
