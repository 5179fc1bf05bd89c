"""`jointnmt analyse`: where do systems differ?"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table

from jointnmt.analysis.buckets import Buckets, Value
from jointnmt.analysis.corpus import (
    FREQUENCIES,
    LENGTHS,
    POSITIONS,
    Analysis,
    Predictions,
    accuracies_by_frequency,
    accuracies_by_position,
    length_ratios,
    scores_by_length,
)
from jointnmt.analysis.figures import analysis_csv, analysis_figure
from jointnmt.cli.console import stdout
from jointnmt.cli.lines import text_lines
from jointnmt.data.store import build_store
from jointnmt.errors import ConfigurationError
from jointnmt.evaluation.scores import check_parallel, measures
from jointnmt.text.languages import LANGUAGES_WITHOUT_SPACES, base_language
from jointnmt.text.special import eos_id

if TYPE_CHECKING:
    from jointnmt.translator import Translator

logger = logging.getLogger(__name__)

Edges = Annotated[list[int] | None, typer.Option(help="Where a new bucket begins. Repeatable.")]


def analyse(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The runs to compare.")],
    source: Annotated[Path, typer.Option(help="File of source sentences (plain, .gz, .xz).")],
    reference: Annotated[Path, typer.Option(help="File of their translations, line by line.")],
    out: Annotated[Path, typer.Option(help="Folder for figures (.png), numbers (.csv) and all of it (analysis.json).")],
    metric: Annotated[list[str] | None, typer.Option(help="bleu, chrf. Repeatable. Default: both.")] = None,
    length_edges: Edges = None,
    position_edges: Edges = None,
    frequency_edges: Edges = None,
    device: Annotated[str, typer.Option(help="Where runs compute: auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Compare runs by length of the sentence, position in the target and frequency of the token.

    Each run translates the source, and predicts the reference token by token. Length ratio, BLEU and chrF are given by
    length of the source in words; accuracy of the next token, teacher-forced, by its position, and by how often it
    stands in the run's own training text. Every bucket has its size and a 95% interval by bootstrap. The figures are
    those of Li et al. 2020, Figures 3 and 4.
    """
    wanted = metric or ["bleu", "chrf"]
    if unknown := sorted(set(wanted) - {"bleu", "chrf"}):
        raise ConfigurationError(f"--metric {', '.join(unknown)}: there are bleu and chrf.")
    if len({run.name for run in runs}) < len(runs):
        raise ConfigurationError("Two runs have the same name, and a figure could not tell them apart. Rename one.")
    lengths, positions, frequencies = (
        _buckets(edges, default)
        for edges, default in ((length_edges, LENGTHS), (position_edges, POSITIONS), (frequency_edges, FREQUENCIES))
    )
    sources, references = list(text_lines(source)), list(text_lines(reference))
    check_parallel(sources, references, str(source), str(reference))
    translations, predictions, languages = {}, {}, []
    for run in runs:
        translator = _load(run, device)
        logger.info("%s: translating and predicting %d sentences", run, len(sources))
        translations[run.name] = translator.translate(sources)
        predictions[run.name] = _predictions(translator, sources, references)
        languages.append((translator.segmentation.source.language, translator.segmentation.target.language))
    (source_language, language) = languages[0]
    if len(set(languages)) > 1:
        raise ConfigurationError(f"The runs are not of the same languages: {', '.join(map('-'.join, languages))}.")
    words = [_words(text, source_language) for text in sources]
    analyses = [
        length_ratios(translations, references, words, _tokens(language), lengths),
        *(scores_by_length(translations, references, words, language, each, lengths) for each in wanted),
        accuracies_by_position(predictions, positions),
        accuracies_by_frequency(predictions, frequencies),
    ]
    _write(analyses, out)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in analyses], ensure_ascii=False))
        return
    for each in analyses:
        stdout().print(_table(each))


def _buckets(edges: Sequence[int] | None, default: Buckets) -> Buckets:
    if not edges:
        return default
    try:
        return Buckets(tuple(edges), default.lowest)
    except ValueError as error:
        raise ConfigurationError(f"Edges {', '.join(map(str, edges))}: {error}.") from error


def _load(run: Path, device: str) -> Translator:
    from jointnmt.translator import Translator  # slow to import

    return Translator.load(run, device)


def _predictions(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> Predictions:
    """Hits and training frequencies of the references' tokens."""
    segmentation = translator.segmentation
    store = build_store(translator.experiment.data, segmentation, "train")
    counts = np.zeros(segmentation.target.vocabulary_size, dtype=np.int64)
    for start in range(0, len(store), 10_000):
        pairs = store.pairs(range(start, min(start + 10_000, len(store))))
        counts += np.bincount([*chain.from_iterable(target for _, target in pairs)], minlength=len(counts))
    counts[eos_id] = len(store)
    hits = [score.first_choices for score in translator.score_stream(sources, references)]
    ids = [[*segmentation.target.encode_ids(text), eos_id] for text in references]
    frequencies = [counts[row].tolist() if found else [] for row, found in zip(ids, hits, strict=True)]
    return Predictions(hits, frequencies)


def _words(text: str, language: str) -> int:
    unspaced = base_language(language) in LANGUAGES_WITHOUT_SPACES
    return max(1, len("".join(text.split())) if unspaced else len(text.split()))


def _tokens(language: str) -> Callable[[str], int]:
    """Counts tokens as BLEU does."""
    metric = measures(language, ["bleu"])["bleu"].metric
    return lambda text: len(metric.tokenizer(text).split())  # type: ignore[attr-defined]


def _write(analyses: Sequence[Analysis], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for each in analyses:
        (out / f"{each.name}.csv").write_text(analysis_csv(each), encoding="utf-8")
        analysis_figure(each).savefig(out / f"{each.name}.png", dpi=150)
    values = json.dumps([asdict(each) for each in analyses], ensure_ascii=False, indent=1)
    (out / "analysis.json").write_text(values + "\n", encoding="utf-8")
    logger.info("%d figures with their numbers are in %s", len(analyses), out)


def _table(analysis: Analysis) -> Table:
    table = Table(title=analysis.title, caption=f"95% intervals by bootstrap; n: {analysis.unit}")
    table.add_column(analysis.bucketed_by)
    table.add_column("n", justify="right")
    for name in analysis.systems:
        table.add_column(name, justify="right")
    for values in zip(*analysis.systems.values(), strict=True):
        sizes = sorted({value.size for value in values})
        table.add_row(
            values[0].bucket, " to ".join(f"{size:,}" for size in sizes[:: max(len(sizes) - 1, 1)]), *map(_cell, values)
        )
    return table


def _cell(value: Value) -> str:
    if value.value is None:
        return ""
    places = 2 if value.value > 2 else 3
    interval = "" if value.low is None else f" ({value.low:.{places}f} to {value.high:.{places}f})"
    return f"{value.value:.{places}f}{interval}"
