"""What `jointnmt evaluate` prints: tables for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jointnmt.evaluation.scores import METRICS, TITLES, Scores
from jointnmt.evaluation.significance import Comparison, Resampled


@dataclass(frozen=True)
class Texts:
    """Reference translations and, where they are needed, their sources."""

    references: Sequence[str]
    sources: Sequence[str]
    reference_name: str
    """The file of the references."""
    source_name: str


@dataclass(frozen=True)
class System:
    """Translations by one system."""

    name: str
    translations: Sequence[str]
    languages: tuple[str, str] | None = None
    """Of source and target, if the system is a run's."""
    perplexity: float | None = None
    """Of the references, if the system is a run's."""
    lowercase: bool = False
    """Whether it is known to write lower case only."""
    pieces: str | None = None
    """What the perplexity's pieces are, if the system is a run's: the fingerprint of its segmentation."""


@dataclass(frozen=True)
class Report:
    """Everything that was measured, the systems in one order throughout."""

    language: str
    metrics: Sequence[str]
    texts: Texts
    systems: Sequence[System]
    scores: Sequence[Scores]
    comparisons: Sequence[Comparison]
    num_examples: int

    def plain(self) -> dict[str, Any]:
        """The report as JSON-compatible values."""
        systems = [
            {"name": system.name, "perplexity": system.perplexity, **scores.plain()}
            for system, scores in zip(self.systems, self.scores, strict=True)
        ]
        values: dict[str, Any] = {"language": self.language, "systems": systems}
        if self.comparisons:
            values["comparisons"] = [asdict(comparison) for comparison in self.comparisons]
        if self.num_examples:
            values["examples"] = [dict(example) for example in self._examples()]
        return values

    def show(self, console: Console) -> None:
        """Print the tables: examples, scores with signatures, comparisons."""
        if self.num_examples:
            console.print(self._example_table())
        console.print(self._score_table())
        shown = [metric for metric in METRICS if getattr(self.scores[0], metric) is not None]
        for metric in shown:
            console.print(_signature(metric, getattr(self.scores[0], metric).signature), soft_wrap=True)
        if self.comparisons:
            console.print(self._comparison_table())
            for comparison in self.comparisons:
                console.print(_signature(comparison.metric, comparison.signature), soft_wrap=True)

    def _examples(self) -> Iterator[list[tuple[str, str]]]:
        """Of each of the first sentences: what is shown, under its name."""
        for number, reference in enumerate(self.texts.references[: self.num_examples]):
            source = [("source", self.texts.sources[number])] if self.texts.sources else []
            translations = [(system.name, system.translations[number]) for system in self.systems]
            yield [*source, ("reference", reference), *translations]

    def _example_table(self) -> Table:
        table = Table(show_header=False, title=f"The first {self.num_examples} sentences")
        for example in self._examples():
            for name, sentence in example:
                table.add_row(Text(name, style="dim"), Text(sentence))
            table.add_section()
        return table

    def _score_table(self) -> Table:
        table = Table(title=f"{self.scores[0].sentences:,} sentences, target language {self.language}")
        table.add_column("system", overflow="fold")
        shown = [metric for metric in METRICS if getattr(self.scores[0], metric) is not None]
        for metric in shown:
            table.add_column(TITLES[metric], justify="right")
        table.add_column("length ratio", justify="right")
        with_perplexity = any(system.perplexity is not None for system in self.systems)
        if with_perplexity:
            table.add_column("perplexity", justify="right")
        for system, scores in zip(self.systems, self.scores, strict=True):
            row = [f"{getattr(scores, metric).value:.2f}" for metric in shown] + [f"{scores.length_ratio:.3f}"]
            if with_perplexity:
                row.append("" if system.perplexity is None else f"{system.perplexity:.2f}")
            table.add_row(Text(system.name), *row)
        return table

    def _comparison_table(self) -> Table:
        first = self.systems[0].name
        table = Table(
            title="Paired bootstrap resampling: mean ± half of the 95% interval",
            caption=f"p: probability of such a difference from {first} by chance, in either direction; * below 0.05",
        )
        table.add_column("system", overflow="fold")
        for comparison in self.comparisons:
            table.add_column(TITLES[comparison.metric], justify="right")
        for results in zip(*(comparison.systems for comparison in self.comparisons), strict=True):
            table.add_row(Text(results[0].system), *map(_interval, results))
        return table


def _interval(result: Resampled) -> str:
    text = f"{result.mean:.2f} ± {result.half_width:.2f}"
    if result.p_value is None:
        return text
    return f"{text}\np = {result.p_value:.3f}{'*' if result.p_value < 0.05 else ''}"


def _signature(metric: str, signature: str) -> Text:
    return Text(f"{TITLES[metric]}: {signature}", style="dim")
