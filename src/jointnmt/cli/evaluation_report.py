"""The tables of `jointnmt evaluate`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jointnmt.evaluation.scores import METRICS, TITLES, Scores
from jointnmt.evaluation.significance import BootstrapResult
from jointnmt.testset.systems import Evaluation


def show_evaluation(console: Console, evaluation: Evaluation, num_examples: int) -> None:
    """Print examples, scores with their signatures, and comparisons."""
    first = evaluation.scores[0]
    if num_examples:
        console.print(_example_table(evaluation, num_examples))
    console.print(_score_table(evaluation))
    for metric in _measured_metrics(first):
        console.print(_signature(metric, getattr(first, metric).signature), soft_wrap=True)
    if evaluation.comparisons:
        console.print(_comparison_table(evaluation))
        for comparison in evaluation.comparisons:
            console.print(_signature(comparison.metric, comparison.signature), soft_wrap=True)


def _measured_metrics(scores: Scores) -> list[str]:
    return [metric for metric in METRICS if getattr(scores, metric) is not None]


def _example_table(evaluation: Evaluation, count: int) -> Table:
    table = Table(show_header=False, title=f"The first {count} sentences")
    for example in evaluation.examples(count):
        for name, sentence in example:
            table.add_row(Text(name, style="dim"), Text(sentence))
        table.add_section()
    return table


def _score_table(evaluation: Evaluation) -> Table:
    first = evaluation.scores[0]
    table = Table(title=f"{first.sentences:,} sentences, target language {evaluation.language}")
    table.add_column("system", overflow="fold")
    metrics = _measured_metrics(first)
    for metric in metrics:
        table.add_column(TITLES[metric], justify="right")
    table.add_column("length ratio", justify="right")
    with_perplexity = any(system.perplexity is not None for system in evaluation.systems)
    if with_perplexity:
        table.add_column("perplexity", justify="right")
    for system, scores in zip(evaluation.systems, evaluation.scores, strict=True):
        row = [f"{getattr(scores, metric).value:.2f}" for metric in metrics] + [f"{scores.length_ratio:.3f}"]
        if with_perplexity:
            row.append("" if system.perplexity is None else f"{system.perplexity:.2f}")
        table.add_row(Text(system.name), *row)
    return table


def _comparison_table(evaluation: Evaluation) -> Table:
    first = evaluation.systems[0].name
    table = Table(
        title="Paired bootstrap resampling: mean ± half of the 95% interval",
        caption=f"p: probability of such a difference from {first} by chance, in either direction; * below 0.05",
    )
    table.add_column("system", overflow="fold")
    for comparison in evaluation.comparisons:
        table.add_column(TITLES[comparison.metric], justify="right")
    for results in zip(*(comparison.systems for comparison in evaluation.comparisons), strict=True):
        table.add_row(Text(results[0].system), *map(_interval, results))
    return table


def _interval(result: BootstrapResult) -> str:
    text = f"{result.mean:.2f} ± {result.half_width:.2f}"
    if result.p_value is None:
        return text
    return f"{text}\np = {result.p_value:.3f}{'*' if result.p_value < 0.05 else ''}"


def _signature(metric: str, signature: str) -> Text:
    return Text(f"{TITLES[metric]}: {signature}", style="dim")
